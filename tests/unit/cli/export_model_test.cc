#include "coordinator/cli/export_model.h"

#include <map>
#include <string>

#include "common/model/hf_directory.h"
#include "common/tensor/part_file.h"
#include "tests/support/catch.h"
#include "tests/support/fault_file_system.h"

namespace diloco {
namespace {

constexpr char kConfig[] = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1,
  "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 16,
  "max_position_embeddings": 8, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
  "hidden_act": "silu", "tie_word_embeddings": true,
  "attention_bias": false, "mlp_bias": false})";

// A coordinator's files: an image of version 1 and the change to version 2.
class Served {
 public:
  Served() {
    config_ = *ParseHfConfig("config.json", kConfig);
    layout_ = *BuildLayout(ModelTensors(config_), 1);
    first_.assign(layout_.elements, 0.0f);
    std::vector<float> change(layout_.elements, 0.0f);
    for (int64_t i = 0; i < layout_.elements; ++i) {
      first_[i] = 0.25f * static_cast<float>(i % 7);
      change[i] = 0.125f * static_cast<float>(i % 3);
      second_.push_back(first_[i] + change[i]);
    }
    description_.set_model_json(kConfig);
    description_.set_layout_digest(layout_.ComputeDigest().ToBytes());
    auto* fragment = description_.add_fragments();
    Add(fragment, v1::FILE_KIND_IMAGE, 1, first_, first_);
    Add(fragment, v1::FILE_KIND_UPDATE, 2, change, second_);
  }

  FetchFile Fetch() {
    return [this](const Digest& digest, uint64_t) {
      return fs_.OpenForRead(digest.ToHex());
    };
  }
  v1::ExportDescription& description() { return description_; }
  v1::FragmentFiles* fragment() { return description_.mutable_fragments(0); }
  const std::vector<float>& second() const { return second_; }
  FaultFileSystem& fs() { return fs_; }

 private:
  void Add(v1::FragmentFiles* fragment, v1::FileKind kind, uint64_t version,
           const std::vector<float>& values, const std::vector<float>& result) {
    auto file = *fs_.OpenForWrite("new");
    PartHeader header;
    header.elements = static_cast<int64_t>(values.size());
    PartWriter writer(file.get(), header);
    REQUIRE(writer.Append(values).ok());
    const Digest digest = *writer.Finish();
    REQUIRE(fs_.Rename("new", digest.ToHex()).ok());
    auto* ref = fragment->add_files();
    ref->set_kind(kind);
    ref->set_version(version);
    ref->set_bytes(writer.file_bytes());
    ref->set_digest(digest.ToBytes());
    ref->set_result_digest(DigestOfValues(result).ToBytes());
  }

  FaultFileSystem fs_;
  ModelConfig config_;
  Layout layout_;
  std::vector<float> first_;
  std::vector<float> second_;
  v1::ExportDescription description_;
};

TEST_CASE("an export is the image with the changes after it applied") {
  Served served;
  const auto model = BuildModel(served.description(), served.Fetch());
  REQUIRE(model.ok());
  CHECK(model->theta == served.second());
  CHECK(model->config.hidden == 8);
}

TEST_CASE("a result whose digest was not published is refused by name") {
  Served served;
  auto* change = served.fragment()->mutable_files(1);
  change->set_result_digest(served.fragment()->files(0).result_digest());
  const auto model = BuildModel(served.description(), served.Fetch());
  REQUIRE(model.status().code() == absl::StatusCode::kDataLoss);
  CHECK_THAT(std::string(model.status().message()),
             Catch::StartsWith("change of fragment 0 version 2: gives digest"));
}

TEST_CASE("a bit that flips in a fetched file is found") {
  Served served;
  const auto digest = *Digest::FromBytes(served.fragment()->files(1).digest());
  served.fs().FlipBit(digest.ToHex(), 200, 0);
  CHECK_FALSE(BuildModel(served.description(), served.Fetch()).ok());
}

TEST_CASE("a coordinator with another layout is refused") {
  Served served;
  served.description().set_layout_digest(std::string(32, 'x'));
  CHECK(BuildModel(served.description(), served.Fetch()).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("nonsense in a description is an error, never a crash") {
  Served served;
  SECTION("fragment out of range") { served.fragment()->set_fragment(7); }
  SECTION("short digest") {
    served.fragment()->mutable_files(0)->set_digest("short");
  }
  SECTION("a fragment without files") { served.fragment()->clear_files(); }
  SECTION("no fragment") { served.description().clear_fragments(); }
  SECTION("no model") { served.description().clear_model_json(); }
  SECTION("not a model") { served.description().set_model_json("{]"); }
  CHECK_FALSE(BuildModel(served.description(), served.Fetch()).ok());
}

}  // namespace
}  // namespace diloco

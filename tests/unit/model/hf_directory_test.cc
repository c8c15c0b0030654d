// Hugging Face directories in and out: acceptance cases C3.6 and C3.7.
#include "common/model/hf_directory.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/model/initialiser.h"
#include "common/model/safetensors.h"
#include "tests/support/catch.h"
#include "tests/support/fault_file_system.h"

namespace diloco {
namespace {

void Put(FileSystem* fs, const std::string& path, const std::string& bytes) {
  REQUIRE(fs->CreateDirs(DirName(path)).ok());
  auto file = fs->OpenForWrite(path);
  REQUIRE(file.ok());
  REQUIRE((*file)->Truncate(0).ok());
  REQUIRE((*file)->WriteAt(0, bytes).ok());
}

ModelConfig Small() {
  ModelConfig config;
  config.layers = 2;
  config.hidden = 32;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.ffn = 48;
  config.vocab = 64;
  config.max_positions = 64;
  return config;
}

struct Model {
  ModelConfig config;
  Layout layout;
  std::vector<float> theta;
};

Model Make(ModelConfig config) {
  Model model;
  model.config = config;
  model.layout = *BuildLayout(ModelTensors(config), 1);
  model.theta.resize(model.layout.elements);
  REQUIRE(InitialiseTheta(config, model.layout, 3, absl::MakeSpan(model.theta))
              .ok());
  return model;
}

HfExport ExportOf(const Model& model) {
  HfExport out;
  out.config = model.config;
  out.layout = &model.layout;
  out.theta = model.theta;
  return out;
}

TEST_CASE("C3.7 export, import and export again give the same bytes") {
  for (int kind = 0; kind < 4; ++kind) {
    CAPTURE(kind);
    ModelConfig config = Small();
    config.tied = kind & 1;
    config.qk_norm = kind & 2;
    config.rope_theta = 500000.0;
    config.rms_norm_eps = 1e-6;
    const Model model = Make(config);
    FaultFileSystem fs;
    REQUIRE(WriteHfDirectory(&fs, "out", ExportOf(model)).ok());
    const auto read = ReadHfConfig(&fs, "out");
    CAPTURE(read.status().ToString());
    REQUIRE(read.ok());
    CHECK(*read == config);
    std::vector<float> theta(model.layout.elements, 5.0f);
    REQUIRE(
        ReadHfWeights(&fs, "out", config, model.layout, absl::MakeSpan(theta))
            .ok());
    CHECK(theta == model.theta);
    Model again = model;
    again.theta = theta;
    REQUIRE(WriteHfDirectory(&fs, "again", ExportOf(again)).ok());
    for (const char* file :
         {"model.safetensors", "config.json", "generation_config.json"}) {
      CHECK(*ReadFile(&fs, JoinPath("again", file)) ==
            *ReadFile(&fs, JoinPath("out", file)));
    }
  }
}

TEST_CASE("an export clears away what a killed one has left") {
  FaultFileSystem fs;
  const Model model = Make(Small());
  Put(&fs, "models/out.0123abcd.tmp/model.safetensors", "half of it");
  Put(&fs, "models/other.0123abcd.tmp/model.safetensors", "not ours");
  REQUIRE(WriteHfDirectory(&fs, "models/out", ExportOf(model)).ok());
  CHECK(fs.Exists("models/out/model.safetensors"));
  CHECK_FALSE(fs.Exists("models/out.0123abcd.tmp"));
  CHECK(fs.Exists("models/other.0123abcd.tmp"));
}

TEST_CASE("an export has the keys of both generations of transformers") {
  const Model model = Make(Small());
  FaultFileSystem fs;
  HfExport out = ExportOf(model);
  out.model_card = "# card\n";
  // Somebody else's, whatever it is called.
  REQUIRE(fs.CreateDirs("out.tmp").ok());
  REQUIRE(WriteFileAtomic(&fs, "out.tmp/mine", "kept").ok());
  REQUIRE(WriteHfDirectory(&fs, "out/", out).ok());
  const auto json = nlohmann::json::parse(*ReadFile(&fs, "out/config.json"));
  CHECK(json["rope_theta"] == json["rope_parameters"]["rope_theta"]);
  CHECK(json["torch_dtype"] == "float32");
  CHECK(json["dtype"] == "float32");
  CHECK(json["architectures"][0] == "LlamaForCausalLM");
  CHECK(*ReadFile(&fs, "out/README.md") == "# card\n");
  CHECK(*ReadFile(&fs, "out.tmp/mine") == "kept");
  CHECK(fs.List("")->size() == 2);
}

TEST_CASE(
    "an export never replaces, is whole or absent, and copies files as they "
    "are") {
  const Model model = Make(Small());
  FaultFileSystem fs;
  Put(&fs, "t/special_tokens_map.json", "{ \"odd\" :1}\n");
  HfExport out = ExportOf(model);
  out.tokenizer_files = {"t/special_tokens_map.json"};
  fs.FailSync(3);
  REQUIRE_FALSE(WriteHfDirectory(&fs, "out", out).ok());
  CHECK_FALSE(fs.Exists("out"));
  REQUIRE(WriteHfDirectory(&fs, "out", out).ok());
  CHECK(*ReadFile(&fs, "out/special_tokens_map.json") == "{ \"odd\" :1}\n");
  CHECK(HfTokenizerName("t/pieces.model") == "tokenizer.model");
  CHECK(HfTokenizerName("vocab.json") == "vocab.json");
  const absl::Status twice = WriteHfDirectory(&fs, "out", out);
  CHECK(twice.code() == absl::StatusCode::kAlreadyExists);
  out.tokenizer_files = {"t/missing.json"};
  CHECK_FALSE(WriteHfDirectory(&fs, "other", out).ok());
  CHECK_FALSE(fs.Exists("other"));
  // Durable when it returns.
  fs.Crash();
  CHECK(fs.Exists("out/model.safetensors"));
  std::vector<float> theta(model.layout.elements);
  CHECK(ReadHfWeights(&fs, "out", model.config, model.layout,
                      absl::MakeSpan(theta))
            .ok());
}

// The tensors of `model` as values to write.
std::vector<SafetensorsTensor> Tensors(const Model& model) {
  std::vector<SafetensorsTensor> tensors;
  for (const TensorSpec& t : model.layout.tensors) {
    tensors.push_back(
        {t.decl.name, t.decl.shape,
         absl::MakeConstSpan(model.theta).subspan(t.offset, t.elements)});
  }
  return tensors;
}

absl::Status Read(FileSystem* fs, const Model& model) {
  std::vector<float> theta(model.layout.elements);
  return ReadHfWeights(fs, "m", model.config, model.layout,
                       absl::MakeSpan(theta));
}

TEST_CASE(
    "weights that do not fit are refused with what is missing and unexpected") {
  const Model model = Make(Small());
  FaultFileSystem fs;
  REQUIRE(fs.CreateDirs("m").ok());
  const std::string file = "m/model.safetensors";
  absl::Status status = Read(&fs, model);
  CHECK(absl::StrContains(status.message(), "neither model.safetensors nor"));

  auto tensors = Tensors(model);
  const std::string gone = tensors.back().name;
  tensors.back().name = "model.extra.weight";
  REQUIRE(WriteSafetensors(&fs, file, tensors).ok());
  status = Read(&fs, model);
  CAPTURE(status.ToString());
  CHECK(absl::StrContains(status.message(),
                          absl::StrCat("missing 1 (", gone, ")")));
  CHECK(
      absl::StrContains(status.message(), "unexpected 1 (model.extra.weight)"));

  tensors = Tensors(model);
  for (auto& t : tensors) {
    if (t.name == "model.layers.1.mlp.up_proj.weight")
      std::swap(t.shape[0], t.shape[1]);
  }
  REQUIRE(WriteSafetensors(&fs, file, tensors).ok());
  status = Read(&fs, model);
  CHECK(absl::StrContains(
      status.message(),
      "up_proj.weight\" has shape [32,48], config.json asks for [48,32]"));

  Model broken = model;
  broken.theta[broken.layout.Find("model.norm.weight")->offset + 17] = NAN;
  REQUIRE(WriteSafetensors(&fs, file, Tensors(broken)).ok());
  status = Read(&fs, model);
  CHECK(absl::StrContains(status.message(), "model.norm.weight[17] is NaN"));

  // Tables that old checkpoints carry are ignored.
  tensors = Tensors(model);
  const float table[4] = {1, 2, 3, 4};
  tensors.push_back(
      {"model.layers.0.self_attn.rotary_emb.inv_freq", {4}, table});
  REQUIRE(WriteSafetensors(&fs, file, tensors).ok());
  CHECK(Read(&fs, model).ok());
}

TEST_CASE("a tied model may repeat its head only unchanged") {
  ModelConfig config = Small();
  config.tied = true;
  Model model = Make(config);
  FaultFileSystem fs;
  REQUIRE(fs.CreateDirs("m").ok());
  auto tensors = Tensors(model);
  std::vector<float> head;
  for (const auto& t : tensors) {
    if (t.name == "model.embed_tokens.weight")
      head.assign(t.values.begin(), t.values.end());
  }
  tensors.push_back({"lm_head.weight", {64, 32}, head});
  REQUIRE(WriteSafetensors(&fs, "m/model.safetensors", tensors).ok());
  CHECK(Read(&fs, model).ok());
  head[5] += 1;
  REQUIRE(WriteSafetensors(&fs, "m/model.safetensors", tensors).ok());
  CHECK(
      absl::StrContains(Read(&fs, model).message(), "lm_head.weight differs"));
}

TEST_CASE(
    "C3.6 sharded weights are read by their index; a missing shard is named") {
  const Model model = Make(Small());
  const auto tensors = Tensors(model);
  const size_t half = tensors.size() / 2;
  nlohmann::json index = {{"metadata", {{"total_size", 1}}}};
  for (size_t i = 0; i < tensors.size(); ++i) {
    index["weight_map"][tensors[i].name] =
        i < half ? "a.safetensors" : "b.safetensors";
  }
  FaultFileSystem fs;
  Put(&fs, "m/model.safetensors.index.json", index.dump());
  REQUIRE(WriteSafetensors(&fs, "m/a.safetensors",
                           {tensors.begin(), tensors.begin() + half})
              .ok());
  absl::Status status = Read(&fs, model);
  CAPTURE(status.ToString());
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK(absl::StrContains(status.message(), "m/b.safetensors is missing"));
  CHECK(absl::StrContains(status.message(),
                          "m/model.safetensors.index.json lists it"));
  REQUIRE(WriteSafetensors(&fs, "m/b.safetensors",
                           {tensors.begin() + half, tensors.end()})
              .ok());
  CHECK(Read(&fs, model).ok());
  REQUIRE(WriteSafetensors(&fs, "m/b.safetensors",
                           {tensors.begin() + half - 1, tensors.end()})
              .ok());
  CHECK(absl::StrContains(Read(&fs, model).message(),
                          "is in m/a.safetensors and in m/b.safetensors"));
  REQUIRE(WriteSafetensors(&fs, "m/b.safetensors",
                           {tensors.begin() + half + 1, tensors.end()})
              .ok());
  CHECK(absl::StrContains(Read(&fs, model).message(), "says it is here"));
  index["weight_map"]["x"] = "../evil.safetensors";
  Put(&fs, "m/model.safetensors.index.json", index.dump());
  CHECK(absl::StrContains(Read(&fs, model).message(),
                          "no file of this directory"));
  Put(&fs, "m/model.safetensors.index.json", "[]");
  CHECK(absl::StrContains(Read(&fs, model).message(), "no index"));
}

const char kLlama[] =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
 "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
 "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 300,
 "rms_norm_eps": 1e-05, "hidden_act": "silu", "max_position_embeddings": 256})";

TEST_CASE("both generations of config.json keys are read") {
  const auto plain = ParseHfConfig("c", kLlama);
  REQUIRE(plain.ok());
  CHECK(plain->head_dim == 16);
  CHECK(plain->rope_theta == 10000.0);
  CHECK_FALSE(plain->qk_norm);
  const auto with = [](const char* more) {
    return ParseHfConfig(
        "c", absl::StrReplaceAll(kLlama,
                                 {{"256}", absl::StrCat("256, ", more, "}")}}));
  };
  CHECK(
      with(
          R"("rope_theta": 5e5, "torch_dtype": "bfloat16", "rope_scaling": null)")
          ->rope_theta == 5e5);
  CHECK(
      with(
          R"("rope_parameters": {"rope_theta": 7e4, "rope_type": "default"}, "dtype": "float32")")
          ->rope_theta == 7e4);
  CHECK(
      with(
          R"("rope_theta": 7e4, "rope_parameters": {"rope_theta": 7e4, "rope_type": "default"})")
          ->rope_theta == 7e4);
  CHECK(with(R"("head_dim": 32)")->head_dim == 32);
  const auto qwen = ParseHfConfig(
      "c", absl::StrReplaceAll(
               kLlama, {{"Llama", "Qwen3"}, {"\"llama\"", "\"qwen3\""}}));
  CAPTURE(qwen.status().ToString());
  REQUIRE(qwen.ok());
  CHECK(qwen->qk_norm);
  CHECK(qwen->head_dim == 128);

  struct Case {
    const char* more;
    const char* words;
  };
  const Case bad[] = {
      {R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0})", "llama3"},
      {R"("rope_scaling": {"type": "linear", "factor": 2.0})", "linear"},
      {R"("rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn"})",
       "yarn"},
      {R"("rope_theta": 1e4, "rope_parameters": {"rope_theta": 2e4})", "20000"},
      {R"("partial_rotary_factor": 0.5)", "partial_rotary_factor"},
      {R"("attention_bias": true)", "attention_bias"},
      {R"("mlp_bias": true)", "mlp_bias"},
      {R"("use_sliding_window": true)", "use_sliding_window"},
      {R"("layer_types": ["sliding_attention"])", "sliding_attention"},
      {R"("quantization_config": {"bits": 4})", "quantization_config"},
      {R"("head_dim": 7)", "odd"},
      {R"("head_dim": "8")", "whole number"},
      {R"("tie_word_embeddings": 1)", "true or false"},
      {R"("rms_norm_eps": 0)", "rms_norm_eps"},
  };
  for (const Case& c : bad) {
    INFO(c.more);
    const auto refused = with(c.more);
    REQUIRE(refused.status().code() == absl::StatusCode::kInvalidArgument);
    CAPTURE(refused.status().ToString());
    CHECK(absl::StrContains(refused.status().message(), c.words));
    CHECK(absl::StartsWith(refused.status().message(), "c: "));
  }
  const auto changed = [](const char* from, const char* to) {
    return std::string(
        ParseHfConfig("c", absl::StrReplaceAll(kLlama, {{from, to}}))
            .status()
            .message());
  };
  CHECK(absl::StrContains(changed("\"silu\"", "\"gelu\""), "gelu"));
  CHECK(absl::StrContains(changed("\"llama\"", "\"gpt2\""), "gpt2"));
  CHECK(absl::StrContains(changed("LlamaForCausalLM", "MistralForCausalLM"),
                          "MistralForCausalLM"));
  CHECK(absl::StrContains(changed("\"vocab_size\": 300,", ""),
                          "vocab_size: is missing"));
  CHECK(absl::StrContains(changed("300", "-300"), "vocab_size"));
  CHECK(absl::StrContains(changed("300", "1e30"), "vocab_size"));
  CHECK(absl::StrContains(changed("{", "["), "not a JSON object"));
}

TEST_CASE("the reference checkpoint is read and exported unchanged") {
  const char* root = std::getenv("DILOCO_FIXTURES");
  if (root == nullptr) {
    WARN("skipped: DILOCO_FIXTURES is not set");
    return;
  }
  FileSystem* posix = FileSystem::Posix();
  const std::string dir = absl::StrCat(root, "/llama_tiny");
  const auto config = ReadHfConfig(posix, dir);
  CAPTURE(config.status().ToString());
  REQUIRE(config.ok());
  const auto old =
      ParseHfConfig("old", *ReadFile(posix, dir + "/config_old_style.json"));
  REQUIRE(old.ok());
  CHECK(*old == *config);
  Model model = Make(*config);
  REQUIRE(ReadHfWeights(posix, dir, *config, model.layout,
                        absl::MakeSpan(model.theta))
              .ok());
  FaultFileSystem fs;
  REQUIRE(WriteHfDirectory(&fs, "out", ExportOf(model)).ok());
  const auto ours = SafetensorsReader::Open(&fs, "out/model.safetensors");
  const auto theirs =
      SafetensorsReader::Open(posix, dir + "/model.safetensors");
  REQUIRE(ours.ok());
  REQUIRE(theirs.ok());
  REQUIRE(ours->tensors().size() == theirs->tensors().size());
  for (const SafetensorsEntry& entry : theirs->tensors()) {
    const SafetensorsEntry* copy = ours->Find(entry.name);
    REQUIRE(copy != nullptr);
    REQUIRE(copy->shape == entry.shape);
    std::vector<float> a(entry.elements), b(entry.elements);
    REQUIRE(theirs->ReadFloats(entry, absl::MakeSpan(a)).ok());
    REQUIRE(ours->ReadFloats(*copy, absl::MakeSpan(b)).ok());
    CHECK(a == b);
  }
}

}  // namespace
}  // namespace diloco

// theta(0) and the declared parameters.
#include "common/model/initialiser.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "absl/strings/match.h"
#include "common/io/digest.h"
#include "common/tensor/part_file.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

ModelConfig Tiny() {
  ModelConfig config;
  config.layers = 4;
  config.hidden = 128;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 32;
  config.ffn = 344;
  config.vocab = 2048;
  config.tied = true;
  config.max_positions = 128;
  return config;
}

std::vector<float> Init(const ModelConfig& config, const Layout& layout,
                        uint64_t seed) {
  std::vector<float> theta(layout.elements, 9.0f);
  REQUIRE(InitialiseTheta(config, layout, seed, absl::MakeSpan(theta)).ok());
  return theta;
}

struct Moments {
  double mean = 0, std = 0, kurtosis = 0, max = 0;
};

Moments MomentsOf(absl::Span<const float> values) {
  Moments m;
  const double n = static_cast<double>(values.size());
  m.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double second = 0, fourth = 0;
  for (float v : values) {
    const double d = v - m.mean;
    second += d * d / n;
    fourth += d * d * d * d / n;
    m.max = std::max(m.max, std::fabs(d));
  }
  m.std = std::sqrt(second);
  m.kurtosis = fourth / (second * second);
  return m;
}

TEST_CASE("theta(0) has the same bits on every CPU and at every -O") {
  const ModelConfig config = Tiny();
  const auto layout = BuildLayout(ModelTensors(config), 1);
  REQUIRE(layout.ok());
  CHECK(DigestOfValues(Init(config, *layout, 1)).ToHex() ==
        "46a974f846ce23a3641cb9e41e08f5da0e04e886d4b98367f8868c01be671332");
  ModelConfig untied = config;
  untied.tied = false;
  untied.qk_norm = true;
  const auto other = BuildLayout(ModelTensors(untied), 1);
  REQUIRE(other.ok());
  CHECK(DigestOfValues(Init(untied, *other, 12345678901234567890u)).ToHex() ==
        "379daca2aea36a0a30767685fe3954d96ec7efca4ec5d3c747a0c74552450d71");
}

TEST_CASE("theta(0) is normal with the spread that each tensor should have") {
  const ModelConfig config = Tiny();
  const Layout layout = *BuildLayout(ModelTensors(config), 1);
  const std::vector<float> theta = Init(config, layout, 7);
  const auto values = [&](const char* name) {
    const TensorSpec* tensor = layout.Find(name);
    REQUIRE(tensor != nullptr);
    return absl::MakeConstSpan(theta).subspan(tensor->offset, tensor->elements);
  };
  const Moments embedding = MomentsOf(values("model.embed_tokens.weight"));
  CHECK(embedding.mean == Approx(0).margin(2e-4));
  CHECK(embedding.std == Approx(0.02).epsilon(0.01));
  CHECK(embedding.kurtosis == Approx(2.9).margin(0.1));
  CHECK(embedding.max > 0.07);
  CHECK(embedding.max < 0.12);
  const double residual = 0.02 / std::sqrt(8.0);
  CHECK(MomentsOf(values("model.layers.3.mlp.down_proj.weight")).std ==
        Approx(residual).epsilon(0.02));
  CHECK(MomentsOf(values("model.layers.0.self_attn.o_proj.weight")).std ==
        Approx(residual).epsilon(0.02));
  CHECK(MomentsOf(values("model.layers.0.self_attn.q_proj.weight")).std ==
        Approx(0.02).epsilon(0.02));
  for (float v : values("model.norm.weight")) REQUIRE(v == 1.0f);
  for (float v : values("model.layers.2.input_layernorm.weight"))
    REQUIRE(v == 1.0f);
}

TEST_CASE("tensors differ from each other and between seeds, padding is zero") {
  ModelConfig config = Tiny();
  config.ffn = 100;  // 12,800 elements are no multiple of 256... padding.
  config.hidden = 36;
  config.head_dim = 10;
  config.vocab = 101;
  const Layout layout = *BuildLayout(ModelTensors(config), 1);
  const std::vector<float> a = Init(config, layout, 1);
  const std::vector<float> b = Init(config, layout, 2);
  CHECK(a != b);
  CHECK(a == Init(config, layout, 1));
  std::vector<bool> covered(layout.elements);
  for (const TensorSpec& tensor : layout.tensors) {
    std::fill_n(covered.begin() + tensor.offset, tensor.elements, true);
  }
  int64_t padding = 0;
  for (int64_t i = 0; i < layout.elements; ++i) {
    if (covered[i]) continue;
    ++padding;
    REQUIRE(a[i] == 0.0f);
    REQUIRE(!std::signbit(a[i]));
  }
  CHECK(padding > 0);
  const TensorSpec* up = layout.Find("model.layers.0.mlp.up_proj.weight");
  const TensorSpec* gate = layout.Find("model.layers.0.mlp.gate_proj.weight");
  CHECK(std::memcmp(&a[up->offset], &a[gate->offset], 4 * up->elements) != 0);
}

TEST_CASE("a buffer of the wrong size is refused") {
  const ModelConfig config = Tiny();
  const Layout layout = *BuildLayout(ModelTensors(config), 1);
  std::vector<float> theta(layout.elements - 1);
  CHECK_FALSE(InitialiseTheta(config, layout, 1, absl::MakeSpan(theta)).ok());
}

TEST_CASE("the model declares the Hugging Face names and shapes") {
  ModelConfig config = Tiny();
  std::vector<TensorDecl> tensors = ModelTensors(config);
  REQUIRE(tensors.size() == 1 + 4 * 9 + 1);
  CHECK(tensors[0].name == "model.embed_tokens.weight");
  CHECK(tensors[0].shape == std::vector<int64_t>{2048, 128});
  CHECK(tensors[0].tensor_class == TensorClass::kEmbedding);
  CHECK(tensors[3].name == "model.layers.0.self_attn.k_proj.weight");
  CHECK(tensors[3].shape == std::vector<int64_t>{64, 128});
  CHECK(tensors[1].decayed == false);
  CHECK(tensors[2].decayed == true);
  config.tied = false;
  config.qk_norm = true;
  tensors = ModelTensors(config);
  REQUIRE(tensors.size() == 1 + 4 * 11 + 2);
  CHECK(tensors.back().name == "lm_head.weight");
  CHECK(tensors.back().tensor_class == TensorClass::kHead);
  for (const TensorDecl& tensor : tensors) {
    CHECK(tensor.fragment == 0);
    CHECK(tensor.decayed == (tensor.shape.size() == 2));
  }
}

TEST_CASE(
    "impossible shapes are refused with the number and what is expected") {
  REQUIRE(ValidateModel(Tiny()).ok());
  struct Case {
    void (*change)(ModelConfig&);
    const char* words;
  };
  const Case cases[] = {
      {[](ModelConfig& c) { c.layers = 0; }, "layers is 0"},
      {[](ModelConfig& c) { c.hidden = -1; }, "hidden is -1"},
      {[](ModelConfig& c) { c.kv_heads = 3; },
       "kv_heads 3 does not divide heads 4"},
      {[](ModelConfig& c) { c.kv_heads = 8; }, "does not divide"},
      {[](ModelConfig& c) { c.head_dim = 33; }, "head_dim 33 is odd"},
      {[](ModelConfig& c) { c.head_dim = 0; }, "head_dim is 0"},
      {[](ModelConfig& c) { c.vocab = 1; }, "vocab is 1"},
      {[](ModelConfig& c) { c.vocab = int64_t{1} << 40; }, "vocab"},
      {[](ModelConfig& c) { c.max_positions = 0; }, "max_positions"},
      {[](ModelConfig& c) { c.rms_norm_eps = 0; }, "rms_norm_eps"},
      {[](ModelConfig& c) { c.rms_norm_eps = NAN; }, "rms_norm_eps"},
      {[](ModelConfig& c) { c.rope_theta = NAN; }, "rope_theta"},
      {[](ModelConfig& c) { c.z_loss = -1; }, "z_loss"},
  };
  for (const Case& c : cases) {
    INFO(c.words);
    ModelConfig config = Tiny();
    c.change(config);
    const absl::Status status = ValidateModel(config);
    REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(status.message(), c.words));
  }
}

}  // namespace
}  // namespace diloco

// Which tensor lies in which fragment.
#include "common/model/fragments.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

ModelConfig SmallConfig(int64_t layers, bool tied) {
  ModelConfig config;
  config.layers = layers;
  config.hidden = 64;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.ffn = 192;
  config.vocab = 512;
  config.tied = tied;
  config.max_positions = 64;
  return config;
}

std::map<std::string, int> Assigned(const ModelConfig& config,
                                    const Fragmentation& fragmentation) {
  const auto tensors = AssignFragments(ModelTensors(config), fragmentation);
  CAPTURE(tensors.status().ToString());
  REQUIRE(tensors.ok());
  // Every assignment makes a layout.
  REQUIRE(ModelLayout(config, fragmentation).ok());
  std::map<std::string, int> fragments;
  for (const TensorDecl& tensor : *tensors) {
    fragments[tensor.name] = tensor.fragment;
  }
  return fragments;
}

std::string Refused(const ModelConfig& config,
                    const Fragmentation& fragmentation) {
  const absl::Status status = ModelLayout(config, fragmentation).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

int LayerFragment(const std::map<std::string, int>& fragments, int layer) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const int fragment = fragments.at(prefix + "input_layernorm.weight");
  for (const auto& [name, of] : fragments) {
    if (absl::StartsWith(name, prefix)) CHECK(of == fragment);
  }
  return fragment;
}

TEST_CASE("sequential: as in the streaming reference, layer p is fragment p") {
  // streaming_reference.json: 3 layers, untied; the embedding belongs to
  // fragment 0, final norm and head to fragment 2.
  const auto fragments =
      Assigned(SmallConfig(3, false), {FragmentPattern::kSequential, 3, {}});
  for (int layer = 0; layer < 3; ++layer) {
    CHECK(LayerFragment(fragments, layer) == layer);
  }
  CHECK(fragments.at("model.embed_tokens.weight") == 0);
  CHECK(fragments.at("model.norm.weight") == 2);
  CHECK(fragments.at("lm_head.weight") == 2);
}

TEST_CASE("sequential: unequal groups of layers in a row") {
  const auto fragments =
      Assigned(SmallConfig(7, true), {FragmentPattern::kSequential, 3, {}});
  std::vector<int> layers;
  for (int layer = 0; layer < 7; ++layer) {
    layers.push_back(LayerFragment(fragments, layer));
  }
  CHECK(layers == std::vector<int>{0, 0, 0, 1, 1, 2, 2});
}

TEST_CASE("strided: every P-1st layer; the rest has a fragment of its own") {
  const auto fragments =
      Assigned(SmallConfig(7, false), {FragmentPattern::kStrided, 4, {}});
  for (int layer = 0; layer < 7; ++layer) {
    CHECK(LayerFragment(fragments, layer) == layer % 3);
  }
  CHECK(fragments.at("model.embed_tokens.weight") == 3);
  CHECK(fragments.at("model.norm.weight") == 3);
  CHECK(fragments.at("lm_head.weight") == 3);
}

TEST_CASE("balanced: the largest fragment has at most 4/3 of the best share") {
  for (const uint32_t count : {1u, 2u, 5u, 24u}) {
    const ModelConfig config = SmallConfig(6, true);
    const Fragmentation balanced{FragmentPattern::kBalanced, count, {}};
    const auto layout = ModelLayout(config, balanced);
    REQUIRE(layout.ok());
    int64_t largest = 0;
    for (const FragmentSpec& fragment : layout->fragments) {
      largest = std::max(largest, fragment.elements);
    }
    // No split has less than the mean, nor less than the largest tensor.
    const int64_t best =
        std::max(layout->elements / count,
                 layout->Find("model.embed_tokens.weight")->elements);
    CHECK(3 * largest <= 4 * best);
  }
}

TEST_CASE("names: the first pattern that matches takes the tensor") {
  const auto fragments =
      Assigned(SmallConfig(2, false),
               {FragmentPattern::kNames,
                3,
                {"*embed*|lm_head.weight", "*.layers.*.mlp.*", "*"}});
  CHECK(fragments.at("model.embed_tokens.weight") == 0);
  CHECK(fragments.at("lm_head.weight") == 0);
  CHECK(fragments.at("model.layers.1.mlp.up_proj.weight") == 1);
  CHECK(fragments.at("model.layers.1.self_attn.q_proj.weight") == 2);
  CHECK(fragments.at("model.norm.weight") == 2);

  CHECK(absl::StrContains(
      Refused(SmallConfig(2, false),
              {FragmentPattern::kNames, 2, {"*embed*", "*layers*"}}),
      "no pattern matches the tensor model.norm.weight"));
  CHECK(
      absl::StrContains(Refused(SmallConfig(2, false),
                                {FragmentPattern::kNames, 2, {"*", "*norm*"}}),
                        "\"*norm*\" of fragment 1 gets no tensor"));
  // "*" is the only character with a meaning, and all of the name counts.
  CHECK(absl::StrContains(
      Refused(SmallConfig(2, false), {FragmentPattern::kNames, 1, {"model.*"}}),
      "lm_head.weight"));
}

TEST_CASE("what a pattern cannot make is refused with the range it can") {
  const ModelConfig config = SmallConfig(4, true);
  CHECK(absl::StrContains(Refused(config, {FragmentPattern::kWhole, 2, {}}),
                          "expected 1"));
  CHECK(absl::StrContains(
      Refused(config, {FragmentPattern::kSequential, 5, {}}),
      "cannot make 5 fragments of this model: it has 4 layers; expected "
      "from 1 to 4"));
  CHECK(absl::StrContains(Refused(config, {FragmentPattern::kStrided, 6, {}}),
                          "expected from 2 to 5"));
  CHECK(absl::StrContains(Refused(config, {FragmentPattern::kStrided, 1, {}}),
                          "expected from 2 to 5"));
  CHECK(
      absl::StrContains(Refused(config, {FragmentPattern::kBalanced, 1000, {}}),
                        "it has 38 tensors; expected from 1 to 38"));
  CHECK(absl::StrContains(
      Refused(config, {FragmentPattern::kNames, 3, {"*embed*", "*"}}),
      "expected 2"));
  CHECK(absl::StrContains(Refused(config, {FragmentPattern::kBalanced, 0, {}}),
                          "at least one"));
}

TEST_CASE("fragment p is due for the first time at its offset") {
  // streaming_reference.json: H 6, offsets 0, 2, 4; due after 6, 2, 4.
  CHECK(FirstDueStep(0, 3, 6) == 6);
  CHECK(FirstDueStep(1, 3, 6) == 2);
  CHECK(FirstDueStep(2, 3, 6) == 4);
  CHECK(FirstDueStep(0, 1, 100) == 100);
  CHECK(FirstDueStep(23, 24, 24) == 23);
  CHECK(FirstDueStep(2, 3, 100) == 66);
}

}  // namespace
}  // namespace diloco

// Generation: the cache against full passes, determinism, bounds.
#include "worker/train/generator.h"

#include <algorithm>
#include <vector>

#include "tests/support/catch.h"
#include "tests/unit/train/small_model.h"
#include "worker/train/probe.h"

namespace diloco {
namespace {

using testing::LayoutOf;
using testing::Must;

struct Setup {
  ModelConfig config;
  Layout layout;
  std::vector<float> theta;
  std::unique_ptr<Generator> generator;
};

Setup Make(ModelConfig config) {
  Setup setup;
  setup.config = config;
  setup.layout = LayoutOf(config);
  setup.theta = testing::RandomTheta(setup.layout, 3);
  setup.generator = Must(MakeGenerator(config, setup.layout, setup.theta, 1));
  return setup;
}

// The most likely id after `ids`, by a full forward pass.
int32_t BestNext(const Setup& setup, const std::vector<int32_t>& ids) {
  Batch batch;
  batch.ids = ids;
  batch.windows = 1;
  batch.ids_per_window = static_cast<int64_t>(ids.size());
  const ForwardProbe probe =
      Must(RunForwardProbe(setup.config, setup.layout, setup.theta, batch));
  const auto last = probe.logits.end() - setup.config.vocab;
  return static_cast<int32_t>(std::max_element(last, probe.logits.end()) -
                              last);
}

TEST_CASE("greedy generation with the cache follows full forward passes") {
  ModelConfig config = testing::SmallConfig();
  config.tied = GENERATE(false, true);
  config.qk_norm = config.tied;
  const Setup setup = Make(config);
  std::vector<int32_t> ids = {5, 17, 9};
  const std::vector<int32_t> generated =
      Must(setup.generator->Generate(ids, {.tokens = 10, .temperature = 0}));
  REQUIRE(generated.size() == 10);
  for (const int32_t id : generated) {
    REQUIRE(id == BestNext(setup, ids));
    ids.push_back(id);
  }
}

TEST_CASE("generation goes on beyond the model's positions") {
  const Setup setup = Make(testing::SmallConfig());
  const std::vector<int32_t> prompt(20, 4);  // More than 16 already.
  REQUIRE(Must(setup.generator->Generate(prompt, {.tokens = 50})).size() == 50);
}

TEST_CASE("the seed decides the text") {
  const Setup setup = Make(testing::SmallConfig());
  const auto generate = [&](uint64_t seed, double temperature) {
    return Must(setup.generator->Generate(
        {1, 2}, {.tokens = 30, .temperature = temperature, .seed = seed}));
  };
  REQUIRE(generate(1, 1.0) == generate(1, 1.0));
  REQUIRE(generate(1, 1.0) != generate(2, 1.0));
  REQUIRE(generate(1, 0) == generate(2, 0));
}

TEST_CASE("a tiny top-p is greedy and the stop id ends the text") {
  const Setup setup = Make(testing::SmallConfig());
  const std::vector<int32_t> greedy =
      Must(setup.generator->Generate({1, 2}, {.tokens = 12, .temperature = 0}));
  REQUIRE(Must(setup.generator->Generate(
              {1, 2}, {.tokens = 12, .temperature = 1, .top_p = 1e-9})) ==
          greedy);
  const int32_t stop = greedy[4];
  const auto first = std::find(greedy.begin(), greedy.end(), stop);
  const std::vector<int32_t> stopped = Must(setup.generator->Generate(
      {1, 2}, {.tokens = 12, .temperature = 0, .stop_id = stop}));
  REQUIRE(stopped == std::vector<int32_t>(greedy.begin(), first));
}

TEST_CASE("bad prompts and options are refused") {
  const Setup setup = Make(testing::SmallConfig());
  const auto code = [&](const std::vector<int32_t>& prompt,
                        const SampleOptions& options) {
    return setup.generator->Generate(prompt, options).status().code();
  };
  REQUIRE(code({}, {}) == absl::StatusCode::kInvalidArgument);
  REQUIRE(code({61}, {}) == absl::StatusCode::kInvalidArgument);
  REQUIRE(code({1}, {.temperature = -1}) == absl::StatusCode::kInvalidArgument);
  REQUIRE(code({1}, {.top_p = 0}) == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace diloco

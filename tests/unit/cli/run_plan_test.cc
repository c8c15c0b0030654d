// The arithmetic of `dilococtl plan`.
#include "coordinator/cli/run_plan.h"

#include "common/model/fragments.h"
#include "common/tensor/part_file.h"
#include "coordinator/cli/commands.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

RunConfig Load(const std::string& sync) {
  const auto loaded = ParseRunConfig(
      FileSystem::Posix(), "run.yaml",
      "run: {name: kjv}\n"
      "model: {layers: 4, hidden: 64, heads: 4, ffn: 172, vocab: 512, tied: "
      "true}\n"
      "data: {seq_len: 64}\n"
      "train: {tokens: 10M, batch_tokens: 512}\n"
      "sync: {" +
          sync + "}\n");
  CAPTURE(loaded.status().ToString());
  REQUIRE(loaded.ok());
  return loaded->config;
}

TEST_CASE("plan: fragments, offsets, means, peaks and totals") {
  const RunConfig config = Load(
      "interval: 40, fragments: 3, pattern: balanced, overlap: 5, up: int8");
  PlanInput input;
  input.workers = 4;
  input.step = absl::Milliseconds(250);
  input.port_rate = 1e6;
  const auto plan = PlanOf(config, input);
  REQUIRE(plan.ok());
  const Layout layout = *ModelLayout(config.model, config.sync.fragments);
  REQUIRE(plan->fragments.size() == 3);
  CHECK(plan->parameters == layout.parameters);
  int64_t parameters = 0;
  uint64_t up = 0;
  uint64_t largest_up = 0;
  for (size_t f = 0; f < 3; ++f) {
    const FragmentPlan& fragment = plan->fragments[f];
    parameters += fragment.parameters;
    CHECK(fragment.bytes_up ==
          PartFileBytes(Codec::kInt8, layout.fragments[f].elements));
    CHECK(fragment.bytes_down ==
          PartFileBytes(Codec::kFp32, layout.fragments[f].elements));
    up += fragment.bytes_up;
    largest_up = std::max(largest_up, fragment.bytes_up);
  }
  CHECK(parameters == plan->parameters);
  CHECK(plan->bytes_up == up);
  CHECK(plan->fragments[0].offset == 0);
  CHECK(plan->fragments[0].first_due == 40);
  CHECK(plan->fragments[1].offset == 13);
  CHECK(plan->fragments[2].first_due == 26);
  // 10M tokens in steps of 4 x 512; rounds of 40 steps, which take 10 s.
  CHECK(plan->inner_steps == 4883);
  CHECK(plan->rounds == 123);
  CHECK(plan->mean_up == Approx(static_cast<double>(up) / 10));
  // Half of 5 steps up, half of them down.
  CHECK(plan->peak_up == Approx(static_cast<double>(largest_up) / 0.625));
  CHECK(plan->ingress == Approx(123.0 * 4 * static_cast<double>(up)));
  CHECK(plan->sync_seconds ==
        Approx(4 * static_cast<double>(up + plan->bytes_down) / 1e6));
  CHECK(plan->cost_per_billion == 0);  // No prices.
  RunConfig priced = config;
  priced.prices = {2, 0.05};
  const auto cost = PlanOf(priced, input);
  CHECK(cost->gpu_cost == Approx(2 * 4 * 4883 * 0.25 / 3600));
  CHECK(cost->egress_cost == Approx(0.05 * plan->egress / 1e9));
  CHECK(cost->cost_per_billion ==
        Approx((cost->gpu_cost + cost->egress_cost) * 100));
  // 2 x 3/4 x 4 bytes a parameter in each of 40 steps, against one exchange.
  CHECK(plan->ratio_up == Approx(6.0 * static_cast<double>(plan->parameters) *
                                 4883 / (123 * static_cast<double>(up))));
  CHECK(plan->coordinator_bytes ==
        static_cast<uint64_t>(8 * layout.elements) + (64 << 20));
}

TEST_CASE("plan: one fragment is due once an interval, all at once") {
  const auto plan = PlanOf(Load("interval: 40"), PlanInput());
  REQUIRE(plan.ok());
  REQUIRE(plan->fragments.size() == 1);
  CHECK(plan->largest_share == 1);
  CHECK(plan->fragments[0].offset == 0);
  CHECK(plan->fragments[0].parameters == plan->parameters);
}

std::string Advised(const std::string& sync, uint32_t workers,
                    const std::string& key) {
  const RunConfig config = Load(sync);
  PlanInput input;
  input.workers = workers;
  for (const Advice& advice :
       AdviceFor(config, *PlanOf(config, input), input)) {
    if (advice.key == key) return advice.advised;
  }
  return "";
}

TEST_CASE("plan: what is known to do well follows workers and length") {
  // 98 outer steps with two workers: a short run.
  CHECK(Advised("interval: 100", 2, "sync.interval") == "10 to 50");
  CHECK(Advised("interval: 100", 2, "outer.momentum") == "0.5");
  CHECK(Advised("interval: 10", 2, "outer.momentum") == "0.9");
  CHECK(Advised("interval: 10", 2, "outer.lr") == "0.6");
  CHECK(Advised("interval: 10", 2, "sync.interval") == "30");
  CHECK(Advised("interval: 2", 8, "outer.lr") == "0.8");
  CHECK(Advised("interval: 2", 8, "sync.up") == "int8");
  CHECK(Advised("interval: 2", 8, "sync.min_updates") == "4");
  CHECK(Advised("interval: 1", 32, "sync.up") == "e3m0");
  CHECK(Advised("interval: 1", 32, "sync.min_updates") == "16");
}

}  // namespace
}  // namespace diloco

#include "coordinator/cli/run_plan.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/model/fragments.h"
#include "common/tensor/part_file.h"

namespace diloco {
namespace {

constexpr uint64_t kFixedMemory = 64 << 20;
// Outer steps below which a run counts as short.
constexpr uint64_t kShortRun = 200;
// What exchanging may cost of the training time.
constexpr double kSyncShare = 0.05;

uint64_t CeilDiv(uint64_t a, uint64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

uint64_t StepsOfRun(const RunConfig& config, uint32_t workers) {
  return CeilDiv(config.train.tokens, config.train.batch_tokens * workers);
}

// The first rounds may have another interval.
uint64_t RoundsOfRun(const RunConfig::Sync& sync, uint64_t steps) {
  const uint64_t first = uint64_t{sync.rounds_first} * sync.interval_first;
  if (first == 0) return CeilDiv(steps, sync.interval);
  if (steps <= first) return CeilDiv(steps, sync.interval_first);
  return sync.rounds_first + CeilDiv(steps - first, sync.interval);
}

}  // namespace

absl::StatusOr<RunPlan> PlanOf(const RunConfig& config,
                               const PlanInput& input) {
  ASSIGN_OR_RETURN(const Layout layout,
                   ModelLayout(config.model, config.sync.fragments));
  const auto count = static_cast<uint32_t>(layout.fragments.size());
  const uint32_t interval = config.sync.interval;
  RunPlan plan;
  plan.parameters = layout.parameters;
  plan.inner_steps = StepsOfRun(config, input.workers);
  plan.rounds = RoundsOfRun(config.sync, plan.inner_steps);
  uint64_t largest_up = 0;
  uint64_t largest_down = 0;
  int64_t largest = 0;
  for (uint32_t f = 0; f < count; ++f) {
    FragmentPlan& fragment = plan.fragments.emplace_back();
    for (const TensorSpec& tensor : layout.tensors) {
      if (tensor.decl.fragment != static_cast<int>(f)) continue;
      ++fragment.tensors;
      fragment.parameters += tensor.elements;
    }
    fragment.first_due = FirstDueStep(f, count, interval);
    fragment.offset = fragment.first_due % interval;
    const int64_t elements = layout.fragments[f].elements;
    fragment.bytes_up = PartFileBytes(config.sync.up, elements);
    fragment.bytes_down = PartFileBytes(config.sync.down, elements);
    plan.bytes_up += fragment.bytes_up;
    plan.bytes_down += fragment.bytes_down;
    largest = std::max(largest, elements);
    largest_up = std::max(largest_up, fragment.bytes_up);
    largest_down = std::max(largest_down, fragment.bytes_down);
  }
  plan.largest_share =
      static_cast<double>(largest) / static_cast<double>(layout.elements);

  const double step = absl::ToDoubleSeconds(input.step);
  const double window = step * interval;
  plan.mean_up = static_cast<double>(plan.bytes_up) / window;
  plan.mean_down = static_cast<double>(plan.bytes_down) / window;
  // Up and down have half of the overlap each.
  const double room = step * std::max(1u, config.sync.overlap) / 2;
  plan.peak_up = static_cast<double>(largest_up) / room;
  plan.peak_down = static_cast<double>(largest_down) / room;
  const double exchanges =
      static_cast<double>(plan.rounds) * static_cast<double>(input.workers);
  plan.egress = exchanges * static_cast<double>(plan.bytes_down);
  plan.ingress = exchanges * static_cast<double>(plan.bytes_up);
  const double k = input.workers;
  const double hours = step * static_cast<double>(plan.inner_steps) /
                       absl::ToDoubleSeconds(absl::Hours(1));
  plan.gpu_cost = config.prices.gpu_hour * k * hours;
  plan.egress_cost = config.prices.egress_gb * plan.egress / 1e9;
  plan.cost_per_billion = (plan.gpu_cost + plan.egress_cost) /
                          (static_cast<double>(config.train.tokens) / 1e9);
  const double ring = 2 * (k - 1) / k * 4 *
                      static_cast<double>(plan.parameters) *
                      static_cast<double>(plan.inner_steps);
  const double sent =
      static_cast<double>(plan.rounds) * static_cast<double>(plan.bytes_up);
  plan.ratio_up = ring / sent;
  plan.ratio_total = 2 * ring /
                     (sent + static_cast<double>(plan.rounds) *
                                 static_cast<double>(plan.bytes_down));
  plan.sync_seconds = k * static_cast<double>(plan.bytes_up + plan.bytes_down) /
                      input.port_rate;
  // Theta and the outer momentum; a worker has theta, its own copy, gradients
  // and two moments, and what an encoding lost where that is kept.
  const auto fp32 = static_cast<uint64_t>(4 * layout.elements);
  plan.coordinator_bytes = 2 * fp32 + kFixedMemory;
  const bool residual = MakeRunSettings(config, layout).error_feedback;
  plan.worker_bytes = (5 + (residual ? 1 : 0)) * fp32 + kFixedMemory;
  return plan;
}

std::vector<Advice> AdviceFor(const RunConfig& config, const RunPlan& plan,
                              const PlanInput& input) {
  const RunConfig::Sync& sync = config.sync;
  const bool brief = plan.rounds < kShortRun;
  const uint32_t k = input.workers;
  std::vector<Advice> advice;
  const std::string cause =
      brief ? absl::StrFormat("%d outer steps are a short run, under %d",
                              plan.rounds, kShortRun)
            : absl::StrCat(k, " workers");
  if (brief) {
    advice.push_back(
        {"sync.interval", absl::StrCat(sync.interval), "10 to 50", cause});
  } else {
    const double step = absl::ToDoubleSeconds(input.step);
    const double steps = std::ceil(plan.sync_seconds / (kSyncShare * step));
    advice.push_back(
        {"sync.interval", absl::StrCat(sync.interval),
         absl::StrCat(static_cast<int>(std::clamp(steps, 30.0, 500.0))),
         absl::StrFormat("exchange takes %.3g s over the coordinator's port, "
                         "for 5 %% of the time; from 30 to 500",
                         plan.sync_seconds)});
  }
  const char* lr = brief                 ? "0.7"
                   : k >= 8              ? "0.8"
                   : sync.interval < 100 ? "0.6"
                                         : "0.7";
  if (config.outer.rule == OuterRule::kNesterov) {
    advice.push_back({"outer.lr", absl::StrCat(config.outer.lr), lr,
                      sync.preset == Preset::kStreaming
                          ? cause + "; published for streaming: 0.4"
                          : cause});
    advice.push_back(
        {"outer.momentum", absl::StrCat(config.outer.momentum),
         brief ? "0.5" : "0.9",
         brief ? cause + ": more is worse than no exchange" : cause});
  }
  advice.push_back({"sync.up", CodecName(sync.up),
                    brief || k < 8 ? "fp16"
                    : k < 32       ? "int8"
                                   : "e3m0",
                    cause});
  advice.push_back({"sync.min_updates", absl::StrCat(sync.min_updates),
                    brief || k < 8 ? "1" : absl::StrCat(k / 2),
                    "half of many workers"});
  advice.push_back({"sync.deadline",
                    sync.deadline.has_value()
                        ? absl::FormatDuration(*sync.deadline)
                        : "auto",
                    "auto",
                    k <= 3 ? "1.5 x the slowest predicted finish"
                           : "median + 4 MAD of the predicted finishes, within "
                             "1.2 to 2 x the median"});
  return advice;
}

}  // namespace diloco

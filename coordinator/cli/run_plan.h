// What a run file means in bytes and times, before anything runs: the
// arithmetic behind `dilococtl plan`. Pure.
#ifndef COORDINATOR_CLI_RUN_PLAN_H_
#define COORDINATOR_CLI_RUN_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/config.h"

namespace diloco {

struct PlanInput {
  uint32_t workers = 2;
  absl::Duration step = absl::Seconds(1);  // An inner step of each worker.
  double port_rate = 125e6;  // The coordinator's port, bytes/s, each way.
};

struct FragmentPlan {
  size_t tensors = 0;
  int64_t parameters = 0;
  uint32_t offset = 0;      // Due after steps t with t mod H equal to it;
  uint32_t first_due = 0;   // the first such step.
  uint64_t bytes_up = 0;    // An update, as a file.
  uint64_t bytes_down = 0;  // The change that every worker pulls.
};

struct RunPlan {
  std::vector<FragmentPlan> fragments;
  int64_t parameters = 0;
  uint64_t inner_steps = 0;  // Of each worker, over the run.
  uint64_t rounds = 0;       // Of each fragment.
  // One worker's bytes for one update of every fragment.
  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  double largest_share = 0;  // Of the largest fragment: peak of one sync.
  // Bytes/s of one worker: over an interval, and so that the largest fragment
  // goes up and comes down within the overlap (within one step when there is
  // none, else training waits).
  double mean_up = 0;
  double mean_down = 0;
  double peak_up = 0;
  double peak_down = 0;
  double egress = 0;   // From the coordinator over the run, bytes.
  double ingress = 0;  // To it.
  // Of the run at `prices`, without waiting, and per 10^9 tokens; 0: no prices.
  double gpu_cost = 0;
  double egress_cost = 0;
  double cost_per_billion = 0;
  // Bytes that ring all-reduce of fp32 gradients in each inner step would send,
  // as a multiple of what one worker sends here; and of both ways together.
  double ratio_up = 0;
  double ratio_total = 0;
  double sync_seconds = 0;         // All workers' bytes over the port, in turn.
  uint64_t coordinator_bytes = 0;  // Memory.
  uint64_t worker_bytes = 0;       // Likewise, without activations.
};
absl::StatusOr<RunPlan> PlanOf(const RunConfig& config, const PlanInput& input);

// A value that is known to do well, beside the file's.
struct Advice {
  std::string key;
  std::string value;  // The file's.
  std::string advised;
  std::string reason;
};
std::vector<Advice> AdviceFor(const RunConfig& config, const RunPlan& plan,
                              const PlanInput& input);

}  // namespace diloco

#endif  // COORDINATOR_CLI_RUN_PLAN_H_

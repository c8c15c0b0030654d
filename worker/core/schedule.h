// The inner learning rate as a function of the run's progress, and the ramp
// after a cold start of AdamW. Pure. Used by the worker's agent for every step
// and by train-local.
//
//   progress = ProgressAtStep(lease.progress, lease.progress_step, step);
//   lr = LearningRate(train, progress) * JoinRamp(steps_since_start, ramp);
#ifndef WORKER_CORE_SCHEDULE_H_
#define WORKER_CORE_SCHEDULE_H_

#include <cstdint>
#include <optional>

#include "common/config/run_settings.h"

namespace diloco {

// Progress at the end of step `step` (from 0) of a window that starts at
// `progress` and moves by `progress_step` a step. With equal workers, step n
// (from 1) of a run of N steps is at n / N, and LearningRate gives the usual
// per-step formula.
double ProgressAtStep(double progress, double progress_step, uint64_t step);

// Where the next step stands, of a worker whose newest one stood at `reached`
// and which the leases want at `target`, `step` further with each of `steps`
// steps. It never goes back and moves by two such steps at most, so that no
// rate jumps where a round folded more or less than expected or closed without
// this worker; one that has not trained yet, or is further behind than `steps`
// of them, is at `target` at once.
double FollowProgress(std::optional<double> reached, double target, double step,
                      uint32_t steps);

// The learning rate at `progress` (folded tokens / train.tokens; 0 to 1, more
// counts as 1). Warm-up is linear from 0 over train.warmup_tokens. Then, with
// `min` = train.min_lr as a factor of the peak:
//   constant  the peak
//   cosine    half a cosine from the peak to min at the end
//   linear    a line from the peak to min at the end
//   wsd       the peak, then a line to min over the last decay_share
double LearningRate(const TrainSettings& train, double progress);

// Multiplier for step `steps_since_start` (from 0) after a cold start of the
// optimiser: rises linearly to 1, which step ramp_steps - 1 has. 0 ramp steps:
// always 1.
double JoinRamp(uint64_t steps_since_start, uint32_t ramp_steps);

}  // namespace diloco

#endif  // WORKER_CORE_SCHEDULE_H_

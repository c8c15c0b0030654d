// The probe: what a worker that starts cold does before its first step.

#include <utility>

#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "worker/runtime/agent.h"

namespace diloco {
namespace {

constexpr int kTimedSteps = 3;

}  // namespace

// Steps at rate 0 on the data that come first, with all that they touch put
// back: what follows is as if they had not been.
absl::StatusOr<double> Agent::TimeSteps() {
  const TrainSettings& train = joined_.settings.train;
  const int64_t windows = static_cast<int64_t>(train.batch_tokens) /
                          static_cast<int64_t>(train.seq_len);
  ASSIGN_OR_RETURN(const std::vector<NamedBuffer> before, ExportBuffers());
  const uint64_t optimizer_steps = trainer_->optimizer_steps();
  absl::Duration taken;
  for (int i = 0; i < kTimedSteps; ++i) {
    const Instant begin = options_.clock->Now();
    ASSIGN_OR_RETURN(const Batch batch, data_->Read(cursor_, windows));
    RETURN_IF_ERROR(trainer_->Step(batch, /*lr=*/0).status());
    // The first one warms caches and reserves memory.
    if (i > 0) taken += options_.clock->Now() - begin;
  }
  RETURN_IF_ERROR(ImportBuffers(before));
  trainer_->set_optimizer_steps(optimizer_steps);
  return absl::ToDoubleSeconds(taken) / (kTimedSteps - 1);
}

absl::Status Agent::Probe(const RunView& view) {
  if (!progress_.probe.has_value()) {
    ASSIGN_OR_RETURN(progress_.step_seconds, TimeSteps());
  }
  if (!progress_.probe.has_value() ||
      progress_.probe->version != ThetaVersion(local_)) {
    ProgressReport::Probe probe;
    probe.version = ThetaVersion(local_);
    if (view.probe.has_value() && view.probe->version == ThetaVersion(local_)) {
      ASSIGN_OR_RETURN(const LossSum sum, EvaluateWindows(*view.probe));
      probe.first_window = view.probe->first_window;
      probe.windows = view.probe->windows;
      probe.loss_sum = sum.loss_sum;
      probe.tokens = sum.tokens;
    }
    progress_.probe = probe;
  }
  ProgressReport::Probe probe = *progress_.probe;
  RETURN_IF_ERROR(options_.port->Report(progress_).status());
  local_.probe_due = false;
  progress_.probe.reset();
  if (probe.tokens == 0) {
    DILOCO_LOG(INFO) << "probe passed worker=" << options_.worker
                     << " version=" << probe.version
                     << " step_seconds=" << progress_.step_seconds
                     << " loss=\"not compared: no evaluation of this version\"";
  } else {
    DILOCO_LOG(INFO) << "probe passed worker=" << options_.worker
                     << " version=" << probe.version
                     << " step_seconds=" << progress_.step_seconds << " loss="
                     << probe.loss_sum / static_cast<double>(probe.tokens);
  }
  return absl::OkStatus();
}

}  // namespace diloco

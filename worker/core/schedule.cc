// Implements schedule.h.
#include "worker/core/schedule.h"

#include <algorithm>
#include <cmath>

namespace diloco {
namespace {

// The factor of the peak after warm-up; `x` runs from 0 at its end to 1.
double Shape(const TrainSettings& train, double x, double warmup_share) {
  const double min = train.min_lr;
  switch (train.schedule) {
    case ScheduleShape::kConstant:
      return 1.0;
    case ScheduleShape::kCosine:
      return min + (1 - min) * 0.5 * (1 + std::cos(M_PI * x));
    case ScheduleShape::kLinear:
      return 1 - (1 - min) * x;
    case ScheduleShape::kWsd: {
      // The decay is a share of the whole run, cut short by a long warm-up.
      const double share =
          std::min(1.0, train.decay_share / (1 - warmup_share));
      const double left = 1 - x;
      return left >= share ? 1.0 : min + (1 - min) * left / share;
    }
  }
  return 1.0;
}

}  // namespace

double ProgressAtStep(double progress, double progress_step, uint64_t step) {
  return progress + static_cast<double>(step + 1) * progress_step;
}

double FollowProgress(std::optional<double> reached, double target, double step,
                      uint32_t steps) {
  if (!reached.has_value()) return target;
  const double behind = target - *reached;
  if (behind <= 2 * step || behind > steps * step) {
    return std::max(*reached, target);
  }
  return *reached + 2 * step;
}

double LearningRate(const TrainSettings& train, double progress) {
  const double p = std::clamp(progress, 0.0, 1.0);
  const double warmup = train.tokens == 0
                            ? 0.0
                            : static_cast<double>(train.warmup_tokens) /
                                  static_cast<double>(train.tokens);
  if (p < warmup) return train.lr * p / warmup;
  if (warmup >= 1) return train.lr;
  return train.lr * Shape(train, (p - warmup) / (1 - warmup), warmup);
}

double JoinRamp(uint64_t steps_since_start, uint32_t ramp_steps) {
  if (steps_since_start + 1 >= ramp_steps) return 1.0;
  return static_cast<double>(steps_since_start + 1) /
         static_cast<double>(ramp_steps);
}

}  // namespace diloco

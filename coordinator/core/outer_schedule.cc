#include "coordinator/core/outer_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace diloco {

double OuterLrFactor(const OuterSchedule& schedule, uint64_t round) {
  const uint64_t peak = std::max<uint64_t>(1, schedule.warmup_rounds);
  if (round < peak) {
    return static_cast<double>(round) / static_cast<double>(peak);
  }
  if (schedule.shape == OuterShape::kConstant || schedule.decay_rounds == 0) {
    return 1;
  }
  const double done =
      std::min(1.0, static_cast<double>(round - peak) / schedule.decay_rounds);
  const double left = schedule.shape == OuterShape::kLinear
                          ? 1 - done
                          : 0.5 * (1 + std::cos(std::numbers::pi * done));
  return schedule.min_lr + (1 - schedule.min_lr) * left;
}

}  // namespace diloco

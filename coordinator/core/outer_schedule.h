// The outer learning rate of a round. Published recipes keep it constant, or
// take it down late in the run (Covenant-72B: 1.0, then 0.4), or up in the
// first rounds (Pier). What it was stands in RoundClosed.
#ifndef COORDINATOR_CORE_OUTER_SCHEDULE_H_
#define COORDINATOR_CORE_OUTER_SCHEDULE_H_

#include <cstdint>

namespace diloco {

enum class OuterShape { kConstant, kLinear, kCosine };

// Factors of outer.lr: r / warmup_rounds in round r of the warm-up; 1 at its
// last round, or at round 1 where there is none; then down to `min_lr` within
// `decay_rounds`, where it stays. The decay is what `shape` says; kConstant has
// none.
struct OuterSchedule {
  OuterShape shape = OuterShape::kConstant;
  uint32_t warmup_rounds = 0;
  uint32_t decay_rounds = 0;
  double min_lr = 0.1;

  friend bool operator==(const OuterSchedule&, const OuterSchedule&) = default;
};

double OuterLrFactor(const OuterSchedule& schedule, uint64_t round);

}  // namespace diloco

#endif  // COORDINATOR_CORE_OUTER_SCHEDULE_H_

// The one source of time. Deadlines, leases and rates use Now(), a monotonic
// reading that is only comparable inside this process; WallTime() is for log
// lines. Tests use ManualClock.
//
//   Clock* clock = Clock::Real();
//   Instant deadline = clock->Now() + absl::Seconds(30);
#ifndef COMMON_BASE_CLOCK_H_
#define COMMON_BASE_CLOCK_H_

#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace diloco {

// Time since an arbitrary start of this process's monotonic clock.
using Instant = absl::Duration;

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant Now() const = 0;
  virtual absl::Time WallTime() const = 0;

  // The machine's steady clock; never destroyed.
  static Clock* Real();
};

// Moves only when told. Thread-safe.
class ManualClock final : public Clock {
 public:
  Instant Now() const override;
  absl::Time WallTime() const override;
  void Advance(absl::Duration by);

 private:
  mutable Mutex mu_;
  Instant now_ ABSL_GUARDED_BY(mu_) = absl::ZeroDuration();
};

}  // namespace diloco

#endif  // COMMON_BASE_CLOCK_H_

#include "common/base/clock.h"

#include <chrono>

#include "absl/time/clock.h"

namespace diloco {
namespace {

class RealClock final : public Clock {
 public:
  Instant Now() const override {
    return absl::FromChrono(
        std::chrono::steady_clock::now().time_since_epoch());
  }
  absl::Time WallTime() const override { return absl::Now(); }
};

}  // namespace

Clock* Clock::Real() {
  static RealClock* const clock = new RealClock;
  return clock;
}

Instant ManualClock::Now() const {
  MutexLock lock(&mu_);
  return now_;
}

absl::Time ManualClock::WallTime() const { return absl::UnixEpoch() + Now(); }

void ManualClock::Advance(absl::Duration by) {
  MutexLock lock(&mu_);
  now_ += by;
}

}  // namespace diloco

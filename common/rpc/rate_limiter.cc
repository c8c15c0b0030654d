#include "common/rpc/rate_limiter.h"

#include <algorithm>

namespace diloco {
namespace {

constexpr absl::Duration kBurst = absl::Milliseconds(250);

}  // namespace

RateLimiter::RateLimiter(uint64_t bytes_per_second, Clock* clock)
    : rate_(static_cast<double>(bytes_per_second)),
      clock_(clock),
      full_at_(clock->Now()) {}

absl::Duration RateLimiter::Take(uint64_t bytes) {
  if (rate_ == 0) return absl::ZeroDuration();
  MutexLock lock(&mu_);
  const Instant now = clock_->Now();
  const absl::Duration owed = std::max(full_at_ - now, absl::ZeroDuration());
  full_at_ = now + owed + absl::Seconds(static_cast<double>(bytes) / rate_);
  return std::max(owed - kBurst, absl::ZeroDuration());
}

}  // namespace diloco

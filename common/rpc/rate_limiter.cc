#include "common/rpc/rate_limiter.h"

#include <algorithm>

namespace diloco {
namespace {

constexpr absl::Duration kBurst = absl::Milliseconds(250);

}  // namespace

RateLimiter::RateLimiter(uint64_t bytes_per_second, Clock* clock)
    : clock_(clock),
      rate_(static_cast<double>(bytes_per_second)),
      full_at_(clock->Now()) {}

void RateLimiter::SetRate(uint64_t bytes_per_second) {
  MutexLock lock(&mu_);
  rate_ = static_cast<double>(bytes_per_second);
}

absl::Duration RateLimiter::Take(uint64_t bytes) {
  MutexLock lock(&mu_);
  if (rate_ == 0) return absl::ZeroDuration();
  const Instant now = clock_->Now();
  const absl::Duration owed = std::max(full_at_ - now, absl::ZeroDuration());
  full_at_ = now + owed + absl::Seconds(static_cast<double>(bytes) / rate_);
  return std::max(owed - kBurst, absl::ZeroDuration());
}

}  // namespace diloco

// A token bucket that paces bulk transfers, so that they never fill a line that
// control shares: of `bulk.max_rate`, and of what was measured (line.h).
#ifndef COMMON_RPC_RATE_LIMITER_H_
#define COMMON_RPC_RATE_LIMITER_H_

#include <cstdint>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace diloco {

// Thread-safe.
class RateLimiter {
 public:
  // `bytes_per_second` 0: no limit. The bucket holds a quarter of a second.
  RateLimiter(uint64_t bytes_per_second, Clock* clock);

  // From now on.
  void SetRate(uint64_t bytes_per_second);

  // Takes `bytes` from the bucket, which may go into debt, and returns how long
  // the caller must pause before it sends them.
  absl::Duration Take(uint64_t bytes);

 private:
  Clock* const clock_;
  Mutex mu_;
  double rate_ ABSL_GUARDED_BY(mu_);
  // When the bucket is full again.
  Instant full_at_ ABSL_GUARDED_BY(mu_);
};

}  // namespace diloco

#endif  // COMMON_RPC_RATE_LIMITER_H_

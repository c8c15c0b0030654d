// What a process has learnt of the way to its peer in one direction, and what
// follows from it: over how many connections a transfer is spread, and how fast
// it may go so that control on the same way is not late. Lives as long as the
// process; transfers feed it.
//
//   Line up(clock, &limiter);
//   up.NoteRoundTrip(took);                  // A small call was answered.
//   up.Start();                              // A stream begins.
//   Pause(up.Take(bytes)); ...; up.Passed(bytes, waited);
//   while (streams < up.connections()) ...
#ifndef COMMON_RPC_LINE_H_
#define COMMON_RPC_LINE_H_

#include <array>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/rpc/rate_limiter.h"

namespace diloco {

inline constexpr int kMaxConnections = 8;

// How many connections carry `bytes_per_second` over `round_trip`: one for each
// 2 MiB that are on their way at a time, at most kMaxConnections. Kernels grant
// a connection a little more than that unless they are tuned (tcp_wmem). So one
// that is held back by its window asks for a second, those for a third, and a
// line that is the limit itself asks for no more than fill it.
int ConnectionsFor(absl::Duration round_trip, double bytes_per_second);

// Thread-safe.
class Line {
 public:
  // `limit`, which is not owned and may be null, holds in addition.
  Line(Clock* clock, RateLimiter* limit);

  // Of a small call. The smallest of the last 16 is the way's; one that took
  // much longer stood in a queue that bulk had filled: from then on bulk has 90
  // % of what was measured, and more after each call that is on time. Lines of
  // 100 Mbit/s and more are not paced.
  void NoteRoundTrip(absl::Duration took);

  // A stream begins: nothing is on its way.
  void Start();
  // `bytes` passed, after the transfer had waited so long: for room when
  // sending, for data when receiving. What passes between two waits is what the
  // line carries, unless the sender was told to pause in between.
  void Passed(uint64_t bytes, absl::Duration waited);
  // How long to pause before `bytes` more.
  absl::Duration Take(uint64_t bytes);
  // What should be sent at a time: while bulk is paced, no more than a call can
  // wait behind.
  uint64_t MaxPiece() const;

  // How many a transfer should have, and has or had last.
  int connections() const;
  void SetUsed(size_t connections);
  size_t used() const;
  // When last measured; 0: never.
  double bytes_per_second() const;
  // 0: at any rate.
  double pace() const;

 private:
  void Measure(Instant now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetPace(double pace) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Duration RoundTrip() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Clock* const clock_;
  RateLimiter* const limit_;
  RateLimiter bucket_;
  mutable Mutex mu_;
  std::array<absl::Duration, 16> round_trips_ ABSL_GUARDED_BY(mu_);
  size_t next_round_trip_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<Instant> full_at_ ABSL_GUARDED_BY(mu_);  // The first wait.
  uint64_t since_full_ ABSL_GUARDED_BY(mu_) = 0;         // Bytes after it.
  double rate_ ABSL_GUARDED_BY(mu_) = 0;
  double pace_ ABSL_GUARDED_BY(mu_) = 0;
  int connections_ ABSL_GUARDED_BY(mu_) = 1;
  size_t used_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace diloco

#endif  // COMMON_RPC_LINE_H_

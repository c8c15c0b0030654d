#include "worker/simulate/wire.h"

#include <algorithm>
#include <utility>

namespace diloco::sim {

absl::Status EndedByCaller() {
  return absl::CancelledError("ended by the caller");
}

void Answer::Set(absl::StatusOr<std::any> what) {
  MutexLock lock(&mu_);
  if (!value_.has_value()) value_ = std::move(what);
  changed_.SignalAll();
}

absl::StatusOr<std::any> Answer::Await(const Client& client,
                                       const Wire::Call& call) {
  // The ends of calls and processes are looked for, nobody tells them.
  const absl::Duration look =
      call.cancel == nullptr ? absl::Seconds(1) : absl::Milliseconds(100);
  const Instant end = world_->Now() + call.deadline;
  MutexLock lock(&mu_);
  while (true) {
    if (value_.has_value()) return *std::move(value_);
    if (!MaySend(client) || (call.cancel != nullptr && *call.cancel)) {
      return EndedByCaller();
    }
    const absl::Duration left = end - world_->Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError("no answer in time");
    }
    changed_.WaitFor(&mu_, std::min(left, look));
  }
}

}  // namespace diloco::sim

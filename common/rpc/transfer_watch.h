// Ends the calls of a transfer when they make no progress or somebody cancelled
// it: gRPC itself has only total deadlines, which a large file on a slow line
// would always miss.
//
//   grpc::ClientContext context;
//   TransferWatch watch(limit, clock, cancel);
//   watch.Add(&context);
//   ... watch.Progress() after each chunk ...
//   if (watch.stalled()) ...
#ifndef COMMON_RPC_TRANSFER_WATCH_H_
#define COMMON_RPC_TRANSFER_WATCH_H_

#include <grpcpp/client_context.h>

#include <atomic>
#include <set>
#include <thread>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace diloco {

// Set by another thread to end a transfer early.
using TransferCancel = std::atomic<bool>;

// What may end a transfer: the caller's flag and the owner's, which may be
// null. Both outlive this.
class Cancellation {
 public:
  Cancellation(const TransferCancel* caller, const TransferCancel* owner)
      : caller_(caller), owner_(owner) {}
  bool requested() const { return *caller_ || (owner_ != nullptr && *owner_); }

 private:
  const TransferCancel* caller_;
  const TransferCancel* owner_;
};

// Thread-safe.
class TransferWatch {
 public:
  // The calls are cancelled when `limit` passes between two calls of Progress
  // or `cancel` is requested.
  TransferWatch(absl::Duration limit, Clock* clock, const Cancellation& cancel);
  ~TransferWatch();

  // A call that this ends; `context` lives until Remove or longer than this.
  void Add(grpc::ClientContext* context);
  void Remove(grpc::ClientContext* context);
  // Ends them all, and those that are added later.
  void End();

  void Progress();
  bool stalled() const { return stalled_; }

 private:
  void Run();
  void EndLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const absl::Duration limit_;
  Clock* const clock_;
  const Cancellation cancel_;
  std::atomic<bool> stalled_{false};
  Mutex mu_;
  CondVar changed_;
  std::set<grpc::ClientContext*> contexts_ ABSL_GUARDED_BY(mu_);
  Instant last_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// Waits, but not longer than until cancelled; false when it was. A pause that
// was meant, such as pacing, is no lack of progress of `watch`.
bool PauseUnlessCancelled(absl::Duration pause, const Cancellation& cancel,
                          TransferWatch* watch = nullptr);

}  // namespace diloco

#endif  // COMMON_RPC_TRANSFER_WATCH_H_

// Ends a streaming call that makes no progress, or that somebody cancelled:
// gRPC itself has only total deadlines, which a large file on a slow line would
// always miss.
//
//   grpc::ClientContext context;
//   TransferWatch watch(&context, options, &cancel);
//   ... watch.Progress() after each chunk ...
//   if (watch.stalled()) ...
#ifndef COMMON_RPC_TRANSFER_WATCH_H_
#define COMMON_RPC_TRANSFER_WATCH_H_

#include <grpcpp/client_context.h>

#include <atomic>
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
  // The call is cancelled when `limit` passes between two calls of Progress or
  // `cancel` is requested. `context` outlives this object.
  TransferWatch(grpc::ClientContext* context, absl::Duration limit,
                Clock* clock, const Cancellation& cancel);
  ~TransferWatch();

  void Progress();
  bool stalled() const { return stalled_; }

 private:
  void Run();

  grpc::ClientContext* const context_;
  const absl::Duration limit_;
  Clock* const clock_;
  const Cancellation cancel_;
  std::atomic<bool> stalled_{false};
  Mutex mu_;
  CondVar changed_;
  Instant last_ ABSL_GUARDED_BY(mu_);
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// Waits, but not longer than until cancelled; false when it was. A pause that
// was meant, such as pacing, is no lack of progress of `watch`.
bool PauseUnlessCancelled(absl::Duration pause, const Cancellation& cancel,
                          TransferWatch* watch = nullptr);

}  // namespace diloco

#endif  // COMMON_RPC_TRANSFER_WATCH_H_

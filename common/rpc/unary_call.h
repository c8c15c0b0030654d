// The reactor of one unary call that is answered later, from another thread,
// and may be cancelled or stopped meanwhile. Whoever comes first finishes it.
//
//   auto call = UnaryCall::Start(tracker, "Watch");
//   coordinator->Watch(..., [call, response](absl::StatusOr<View> view) {
//     call->Finish([&]() -> absl::Status {
//       RETURN_IF_ERROR(view.status());
//       EncodeView(*view, response);
//       return absl::OkStatus();
//     });
//   });
//   return call->reactor();
#ifndef COMMON_RPC_UNARY_CALL_H_
#define COMMON_RPC_UNARY_CALL_H_

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/rpc/call_tracker.h"

namespace diloco {

// Thread-safe.
class UnaryCall final : public grpc::ServerUnaryReactor, public StoppableCall {
 public:
  // `tracker` outlives the call; `method` is a constant text.
  static std::shared_ptr<UnaryCall> Start(CallTracker* tracker,
                                          const char* method);

  grpc::ServerUnaryReactor* reactor() { return this; }

  // Runs `fill` and finishes with what it returns, unless the call has been
  // finished already; then `fill` does not run and the response, which may be
  // gone, is not touched. `fill` must not block.
  void Finish(const std::function<absl::Status()>& fill);
  void Finish(const absl::Status& status);

  void Stop(const absl::Status& status) override { Finish(status); }
  void OnCancel() override;
  void OnDone() override;

 private:
  UnaryCall(CallTracker* tracker, const char* method)
      : tracker_(tracker), method_(method) {}

  CallTracker* const tracker_;
  const char* const method_;
  std::shared_ptr<UnaryCall> self_;  // Until gRPC is done with the reactor.
  Mutex mu_;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  absl::StatusCode code_ ABSL_GUARDED_BY(mu_) = absl::StatusCode::kOk;
};

}  // namespace diloco

#endif  // COMMON_RPC_UNARY_CALL_H_

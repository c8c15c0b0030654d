#include "common/rpc/unary_call.h"

#include <utility>

#include "common/rpc/status_codec.h"

namespace diloco {

std::shared_ptr<UnaryCall> UnaryCall::Start(CallTracker* tracker,
                                            const char* method) {
  std::shared_ptr<UnaryCall> call(new UnaryCall(tracker, method));
  call->self_ = call;
  tracker->Add(call);
  return call;
}

void UnaryCall::Finish(const std::function<absl::Status()>& fill) {
  absl::Status status;
  {
    MutexLock lock(&mu_);
    if (finished_) return;
    status = fill();
    finished_ = true;
    code_ = status.code();
  }
  // OnDone cannot come before this returns to gRPC, and `self_` lives until
  // then; the caller holds a reference as well.
  grpc::ServerUnaryReactor::Finish(ToGrpcStatus(status));
}

void UnaryCall::Finish(const absl::Status& status) {
  Finish([&status] { return status; });
}

void UnaryCall::OnCancel() {
  Finish(absl::CancelledError("the caller cancelled or its deadline passed"));
}

void UnaryCall::OnDone() {
  absl::StatusCode code;
  {
    MutexLock lock(&mu_);
    code = code_;
  }
  tracker_->Done(this, method_, code);
  // Dropped last: it may be the only reference to this object.
  const std::shared_ptr<UnaryCall> last = std::move(self_);
}

}  // namespace diloco

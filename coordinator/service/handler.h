// What every handler of the coordinator's services has at hand, and the opening
// of a unary call. Private to coordinator/service.
#ifndef COORDINATOR_SERVICE_HANDLER_H_
#define COORDINATOR_SERVICE_HANDLER_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/executor.h"
#include "common/base/status_macros.h"
#include "common/rpc/unary_call.h"
#include "coordinator/runtime/coordinator.h"
#include "coordinator/service/write_order.h"
#include "google/protobuf/message_lite.h"

namespace diloco {

// Not owned; all outlive the server.
struct ServiceContext {
  Coordinator* coordinator = nullptr;
  CallTracker* tracker = nullptr;
  Executor* disk = nullptr;  // For what blocks.
  WriteOrder* order = nullptr;
};

// Largest requests, as in proto/README.md.
inline constexpr size_t kSmallRequest = 4 << 10;
inline constexpr size_t kBeatRequest = 16 << 10;
inline constexpr size_t kJoinRequest = 64 << 10;

inline absl::Status CheckRequestSize(
    const google::protobuf::MessageLite& request, size_t limit) {
  const size_t bytes = request.ByteSizeLong();
  if (bytes <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      request.GetTypeName(), " has ", bytes, " bytes, the limit is ", limit));
}

// The run that an update's key names must be the one served here.
inline absl::Status CheckRun(const std::string& run,
                             const Coordinator& coordinator) {
  const std::string& ours = coordinator.options().run;
  if (run == ours) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the update belongs to run \"", absl::CHexEscape(run),
                   "\", this coordinator has run \"", ours, "\""));
}

// Opens a call, checks the request's size and runs `start`, which hands the
// call on to whoever finishes it; an error it returns ends the call at once.
template <typename Start>
grpc::ServerUnaryReactor* HandleUnary(
    const ServiceContext& context, const char* method,
    const google::protobuf::MessageLite& request, size_t limit, Start start) {
  const std::shared_ptr<UnaryCall> call =
      UnaryCall::Start(context.tracker, method);
  absl::Status status = CheckRequestSize(request, limit);
  if (status.ok()) status = start(call);
  if (!status.ok()) call->Finish(status);
  return call->reactor();
}

// A callback for the coordinator that encodes its result with `fill` and
// finishes the call.
template <typename T, typename Fill>
Done<T> Answer(std::shared_ptr<UnaryCall> call, Fill fill) {
  return [call = std::move(call),
          fill = std::move(fill)](absl::StatusOr<T> result) {
    call->Finish([&]() -> absl::Status {
      RETURN_IF_ERROR(result.status());
      fill(*result);
      return absl::OkStatus();
    });
  };
}

}  // namespace diloco

#endif  // COORDINATOR_SERVICE_HANDLER_H_

#include "common/rpc/status_codec.h"

#include <string>

#include "absl/strings/string_view.h"

namespace diloco {
namespace {

constexpr size_t kMaxMessageBytes = 4096;

#define DILOCO_SAME_CODE(absl_code, grpc_code)                     \
  static_assert(static_cast<int>(absl::StatusCode::absl_code) ==   \
                    static_cast<int>(grpc::StatusCode::grpc_code), \
                "absl and gRPC number their status codes alike")
DILOCO_SAME_CODE(kOk, OK);
DILOCO_SAME_CODE(kCancelled, CANCELLED);
DILOCO_SAME_CODE(kUnknown, UNKNOWN);
DILOCO_SAME_CODE(kInvalidArgument, INVALID_ARGUMENT);
DILOCO_SAME_CODE(kDeadlineExceeded, DEADLINE_EXCEEDED);
DILOCO_SAME_CODE(kNotFound, NOT_FOUND);
DILOCO_SAME_CODE(kAlreadyExists, ALREADY_EXISTS);
DILOCO_SAME_CODE(kPermissionDenied, PERMISSION_DENIED);
DILOCO_SAME_CODE(kResourceExhausted, RESOURCE_EXHAUSTED);
DILOCO_SAME_CODE(kFailedPrecondition, FAILED_PRECONDITION);
DILOCO_SAME_CODE(kAborted, ABORTED);
DILOCO_SAME_CODE(kOutOfRange, OUT_OF_RANGE);
DILOCO_SAME_CODE(kUnimplemented, UNIMPLEMENTED);
DILOCO_SAME_CODE(kInternal, INTERNAL);
DILOCO_SAME_CODE(kUnavailable, UNAVAILABLE);
DILOCO_SAME_CODE(kDataLoss, DATA_LOSS);
DILOCO_SAME_CODE(kUnauthenticated, UNAUTHENTICATED);
#undef DILOCO_SAME_CODE

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const absl::string_view message =
      status.message().substr(0, kMaxMessageBytes);
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(message));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const int code = static_cast<int>(status.error_code());
  // A code outside the known range comes from a newer peer.
  const bool known = code >= 0 && code <= 16;
  return absl::Status(
      known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
      status.error_message());
}

}  // namespace diloco

// absl::Status to grpc::Status and back; the codes are the same numbers. Used
// at the edges only: */service, */transport and the command line.
#ifndef COMMON_RPC_STATUS_CODEC_H_
#define COMMON_RPC_STATUS_CODEC_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace diloco {

// The message is cut at 4 KiB: it travels in a header, and longer ones make
// the peer drop the call.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace diloco

#endif  // COMMON_RPC_STATUS_CODEC_H_

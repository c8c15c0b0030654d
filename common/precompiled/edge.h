// The headers of base.h and those of gRPC, for the edges: common/rpc,
// */service,
// */transport, the command line.
#ifndef COMMON_PRECOMPILED_EDGE_H_
#define COMMON_PRECOMPILED_EDGE_H_

#include <google/protobuf/generated_message_reflection.h>
#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/client_callback.h>
#include <grpcpp/support/server_callback.h>

#include "common/precompiled/base.h"

#endif  // COMMON_PRECOMPILED_EDGE_H_

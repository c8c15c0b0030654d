// The coordinator's listening side: control, bulk and operator's services on
// one address, with the standard health service.
//
//   ASSIGN_OR_RETURN(auto server, GrpcServer::Start(coordinator.get(),
//   "0.0.0.0:7600"));
//   ... server->port() ...
//   server->Shutdown(absl::Seconds(10));   // then coordinator->Stop()
#ifndef COORDINATOR_SERVICE_GRPC_SERVER_H_
#define COORDINATOR_SERVICE_GRPC_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/runtime/coordinator.h"

namespace diloco {

class GrpcServer {
 public:
  // `coordinator` is not owned and outlives the server. Errors as
  // RpcServer::Start: an address in use is UNAVAILABLE and named.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      Coordinator* coordinator, const std::string& address);
  virtual ~GrpcServer() = default;

  virtual int port() const = 0;
  // Health turns NOT_SERVING, waiting calls and streams end with UNAVAILABLE
  // (callers come back and resume), what is left after `grace` is cancelled.
  // Returns when every handler has finished. Idempotent.
  virtual void Shutdown(absl::Duration grace) = 0;
};

}  // namespace diloco

#endif  // COORDINATOR_SERVICE_GRPC_SERVER_H_

// A gRPC server with our limits, keepalive rules, the standard health service
// and a stop that ends. Used by coordinator/service and by tests.
//
//   ASSIGN_OR_RETURN(auto server, RpcServer::Start("127.0.0.1:0", {&service}));
//   ... server->port() ...
//   server->Shutdown(absl::Seconds(5));
#ifndef COMMON_RPC_SERVER_H_
#define COMMON_RPC_SERVER_H_

#include <grpcpp/server.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace diloco {

// Whether a server could be started on `address` now; errors as
// RpcServer::Start's. For who wants to know before doing anything else.
absl::Status CheckCanListen(const std::string& address);

class RpcServer {
 public:
  // `address` is host:port, port 0 picks one. The services are not owned and
  // outlive the server. INVALID_ARGUMENT: malformed or no address of this
  // machine; UNAVAILABLE: it is in use; the text names it.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const std::string& address, const std::vector<grpc::Service*>& services);
  // Shutdown without grace, if not done yet.
  ~RpcServer();

  int port() const { return port_; }

  // Reports NOT_SERVING to health checks; calls go on.
  void SetNotServing();
  // Takes no new calls, gives running ones `grace` and then cancels them.
  // Returns when all handlers have finished; connections to peers that stand
  // still are cut a second after the grace. Not for signal handlers.
  void Shutdown(absl::Duration grace);

 private:
  RpcServer() = default;

  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

}  // namespace diloco

#endif  // COMMON_RPC_SERVER_H_

// The CoordinatorPort over gRPC: one connection for control, and as many for
// bulk as the way there needs.
//
//   ASSIGN_OR_RETURN(auto port,
//                    MakeGrpcPort({.coordinator = "10.0.0.5:7600"}));
//   ASSIGN_OR_RETURN(JoinReply joined, port->Join(call));
#ifndef WORKER_TRANSPORT_GRPC_PORT_H_
#define WORKER_TRANSPORT_GRPC_PORT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/io/file_system.h"
#include "common/metrics/metrics.h"
#include "worker/transport/coordinator_port.h"

namespace diloco {

struct GrpcPortOptions {
  // Behaviour.
  std::string coordinator;  // host:port.
  uint64_t bulk_rate = 0;   // Bytes per second, both ways; 0: no limit.
  // How long a unary call may take, and how long a stream may stand still
  // before it is given up and resumed.
  absl::Duration control_deadline = absl::Seconds(10);
  absl::Duration progress_limit = absl::Seconds(60);
  // Pauses between tries of a transfer.
  absl::Duration retry_initial = absl::Milliseconds(200);
  absl::Duration retry_max = absl::Seconds(5);

  // Environment; not owned.
  Clock* clock = Clock::Real();
  FileSystem* fs = FileSystem::Posix();
  MetricsRegistry* metrics = nullptr;  // Null: none.
};

// INVALID_ARGUMENT for an address that is no host:port. Connects when first
// used, so an absent coordinator shows in the first call.
absl::StatusOr<std::unique_ptr<CoordinatorPort>> MakeGrpcPort(
    GrpcPortOptions options);

}  // namespace diloco

#endif  // WORKER_TRANSPORT_GRPC_PORT_H_

// The coordinator as a process: from a run file to a listening daemon. Used by
// main.cc and by tests that want the whole thing in one process.
#ifndef COORDINATOR_SERVER_H_
#define COORDINATOR_SERVER_H_

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/metrics/metrics.h"
#include "coordinator/config.h"
#include "coordinator/runtime/coordinator.h"
#include "coordinator/service/grpc_server.h"

namespace diloco {

class CoordinatorServer {
 public:
  // Recovers or creates the run and listens. Finds out first whether it can
  // listen. The error names what and where. `accept_edits`: what was edited in
  // the run file of a run that exists is taken over. While the disk is full the
  // start of a run that exists waits, until a stop is requested.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(
      const RunConfig& config, bool accept_edits = false);
  ~CoordinatorServer();

  int control_port() const { return grpc_->port(); }
  Coordinator* coordinator() { return coordinator_.get(); }
  // Asked to stop because another coordinator has gone on with the run.
  bool superseded() const { return superseded_; }
  void Shutdown(absl::Duration grace);

 private:
  CoordinatorServer() = default;

  MetricsRegistry metrics_;
  std::atomic<bool> superseded_ = false;
  std::unique_ptr<Coordinator> coordinator_;
  // What /readyz says.
  std::string NotReady() const;

  // coordinator_ once everything listens; read by http_'s thread.
  std::atomic<const Coordinator*> serving_{nullptr};
  mutable Mutex mu_;
  std::string start_waits_ ABSL_GUARDED_BY(mu_);  // Why; empty: it does not.
  std::unique_ptr<GrpcServer> grpc_;
  std::unique_ptr<MetricsServer> http_;
};

}  // namespace diloco

#endif  // COORDINATOR_SERVER_H_

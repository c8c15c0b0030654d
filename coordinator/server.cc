#include "coordinator/server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/shutdown.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/rpc/server.h"
#include "coordinator/run_options.h"

namespace diloco {
namespace {

// Between two looks of a start that waits for disk space.
constexpr absl::Duration kSpaceRetry = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(
    const RunConfig& config, bool accept_edits) {
  auto server = std::unique_ptr<CoordinatorServer>(new CoordinatorServer);
  ASSIGN_OR_RETURN(CoordinatorOptions options,
                   OptionsOfRun(FileSystem::Posix(), config));
  options.accept_edits = accept_edits;
  options.metrics = &server->metrics_;
  options.on_superseded = [superseded = &server->superseded_] {
    *superseded = true;
    RequestShutdown();
  };
  options.wait_for_space = [starting = server.get()](const std::string& why) {
    {
      MutexLock lock(&starting->mu_);
      starting->start_waits_ = why;
    }
    return !WaitForShutdown(kSpaceRetry);
  };
  server->metrics_
      .AddGauge("diloco_build_info", "1, labelled with the build.",
                {{"version", BuildVersion()}})
      ->Set(1);

  // Before the run is created: a run file that must be corrected would then no
  // longer be that of the state directory.
  RETURN_IF_ERROR(CheckCanListen(config.listen.control));
  if (!config.listen.metrics.empty()) {
    // A long recovery is alive, too.
    ASSIGN_OR_RETURN(
        server->http_,
        MetricsServer::Start(
            config.listen.metrics, &server->metrics_,
            [serving = server.get()] { return serving->NotReady(); }));
  }
  ASSIGN_OR_RETURN(server->coordinator_,
                   Coordinator::Start(std::move(options)));
  ASSIGN_OR_RETURN(server->grpc_, GrpcServer::Start(server->coordinator_.get(),
                                                    config.listen.control));
  server->serving_ = server->coordinator_.get();
  DILOCO_LOG(INFO) << "serving run=" << config.run
                   << " control=" << config.listen.control
                   << " port=" << server->grpc_->port() << " metrics="
                   << (server->http_ == nullptr ? "none"
                                                : config.listen.metrics);
  return server;
}

std::string CoordinatorServer::NotReady() const {
  const Coordinator* const coordinator = serving_;
  if (coordinator != nullptr) return coordinator->NotReady();
  MutexLock lock(&mu_);
  return start_waits_.empty() ? "starting" : start_waits_;
}

CoordinatorServer::~CoordinatorServer() { Shutdown(absl::ZeroDuration()); }

void CoordinatorServer::Shutdown(absl::Duration grace) {
  if (grpc_ != nullptr) grpc_->Shutdown(grace);
  http_.reset();
  if (coordinator_ != nullptr) coordinator_->Stop();
}

}  // namespace diloco

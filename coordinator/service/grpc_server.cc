#include "coordinator/service/grpc_server.h"

#include <algorithm>
#include <utility>

#include "common/base/executor.h"
#include "common/base/status_macros.h"
#include "common/rpc/call_tracker.h"
#include "common/rpc/server.h"
#include "coordinator/service/admin_service.h"
#include "coordinator/service/blob_service.h"
#include "coordinator/service/control_service.h"
#include "coordinator/service/handler.h"

namespace diloco {
namespace {

// File work of all streams; each has at most one task, so the queue's limit is
// one on streams.
constexpr int kDiskThreads = 4;
constexpr size_t kMaxQueued = 1024;

// For connections to end by themselves once no call is left.
constexpr absl::Duration kGoAway = absl::Milliseconds(500);

class GrpcServerImpl final : public GrpcServer {
 public:
  explicit GrpcServerImpl(Coordinator* coordinator)
      : tracker_("diloco_coordinator", coordinator->options().metrics),
        disk_("bulk", kDiskThreads, kMaxQueued),
        context_{.coordinator = coordinator,
                 .tracker = &tracker_,
                 .disk = &disk_,
                 .order = &order_},
        control_(context_),
        blob_(context_),
        admin_(context_) {}
  ~GrpcServerImpl() override { Shutdown(absl::ZeroDuration()); }

  absl::Status Listen(const std::string& address) {
    ASSIGN_OR_RETURN(server_,
                     RpcServer::Start(address, {&control_, &blob_, &admin_}));
    return absl::OkStatus();
  }

  int port() const override { return server_->port(); }

  void Shutdown(absl::Duration grace) override {
    if (server_ == nullptr) return;
    server_->SetNotServing();
    tracker_.StopAll(absl::UnavailableError(
        "the coordinator is stopping; try again, it may come back"));
    // gRPC's own grace is for connections: one that says nothing, not even to
    // a GOAWAY, would use it up.
    tracker_.WaitUntilIdle(grace);
    server_->Shutdown(std::min(grace, kGoAway));
  }

 private:
  CallTracker tracker_;
  WriteOrder order_;
  ThreadPool disk_;
  const ServiceContext context_;
  ControlService control_;
  BlobService blob_;
  AdminService admin_;
  std::unique_ptr<RpcServer> server_;  // First to go.
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    Coordinator* coordinator, const std::string& address) {
  auto server = std::make_unique<GrpcServerImpl>(coordinator);
  RETURN_IF_ERROR(server->Listen(address));
  return std::unique_ptr<GrpcServer>(std::move(server));
}

}  // namespace diloco

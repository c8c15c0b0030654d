#include "common/rpc/server.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/listen_address.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/cut_connections.h"
#include "common/rpc/keepalive.h"

namespace diloco {
namespace {

// Buffers of all connections together. gRPC probes for the line's bandwidth and
// widens the windows for it, which a long line needs: without that one
// connection carries 8 MB/s over 100 ms, with it 100 MB/s. On a fast line the
// probe finds no end and windows grow until four fifths of this are in use; so
// this, not the line, bounds the memory of many uploads at once.
constexpr size_t kQuotaBytes = 20 << 20;

// How far a sender may be ahead of what reads its stream before the probe has
// found anything.
constexpr int kStreamWindowBytes = 2 << 20;

// Calls have so long to end once they are cancelled.
constexpr absl::Duration kCancelTime = absl::Seconds(1);

}  // namespace

absl::Status CheckCanListen(const std::string& address) {
  const absl::Status status = UsableListenAddress(address).status();
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(),
                                   "; change listen.control or stop what "
                                   "listens there"));
}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const std::string& address, const std::vector<grpc::Service*>& services) {
  // gRPC would say no more than that it failed, and log lines of its own.
  RETURN_IF_ERROR(CheckCanListen(address));

  KeepGrpc();
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  // Without this a second server on the port would share it silently.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kServerMinPingMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kServerPingMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
                             kStreamWindowBytes);
  grpc::ResourceQuota quota("server");
  quota.Resize(kQuotaBytes);
  builder.SetResourceQuota(quota);
  int bound = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &bound);
  for (grpc::Service* service : services) builder.RegisterService(service);

  auto server = std::unique_ptr<RpcServer>(new RpcServer);
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr || bound <= 0) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", address,
        ": it was free a moment ago; try again, or change listen.control"));
  }
  server->port_ = bound;
  return server;
}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

void RpcServer::SetNotServing() {
  if (server_ == nullptr) return;
  if (auto* health = server_->GetHealthCheckService()) {
    health->SetServingStatus(false);
  }
}

void RpcServer::Shutdown(absl::Duration grace) {
  if (server_ == nullptr) return;
  // A cancelled call ends once what was handed to its socket has gone out, and
  // a peer that stands still keeps that until its pings time out.
  Mutex mu;
  CondVar changed;
  bool done = false;
  std::thread cutter([&] {
    const Instant end = Clock::Real()->Now() + grace + kCancelTime;
    MutexLock lock(&mu);
    while (!done) {
      const absl::Duration left = end - Clock::Real()->Now();
      if (left <= absl::ZeroDuration()) return CutConnections(port_);
      changed.WaitFor(&mu, left);
    }
  });
  server_->Shutdown(
      gpr_time_from_millis(absl::ToInt64Milliseconds(grace), GPR_TIMESPAN));
  server_->Wait();
  {
    MutexLock lock(&mu);
    done = true;
    changed.SignalAll();
  }
  cutter.join();
  server_.reset();
}

}  // namespace diloco

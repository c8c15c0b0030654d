#include "common/rpc/channel.h"

#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "common/rpc/keepalive.h"

namespace diloco {

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target,
                                           ChannelKind kind) {
  KeepGrpc();
  grpc::ChannelArguments args;
  // gRPC would send even loopback connections through http_proxy.
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kClientPingMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeoutMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // gRPC's own pauses grow to two minutes; a coordinator that restarts should
  // be found again in seconds, and while a pause lasts, every call fails
  // without trying. The second one is how long a connection may take to come
  // about.
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  if (kind == ChannelKind::kBulk) args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(),
                                   args);
}

void KeepGrpc() {
  static const bool kept = (grpc_init(), true);
  (void)kept;
}

gpr_timespec TimeSpan(absl::Duration span) {
  // gRPC turns a span into an instant itself, so that no clock is read here.
  return gpr_time_from_millis(absl::ToInt64Milliseconds(span), GPR_TIMESPAN);
}

void SetTimeout(grpc::ClientContext* context, absl::Duration timeout) {
  context->set_deadline(TimeSpan(timeout));
}

}  // namespace diloco

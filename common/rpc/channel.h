// Client channels, all made here so that limits, keepalive and proxy rules hold
// everywhere. Plaintext; certificates come with common/rpc/tls.
//
//   auto channel = MakeChannel("10.0.0.5:7600", ChannelKind::kControl);
//
// Every channel has a TCP connection of its own: gRPC would share one between
// channels of the same target, and bulk would then delay control.
#ifndef COMMON_RPC_CHANNEL_H_
#define COMMON_RPC_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <memory>
#include <string>

#include "absl/time/time.h"

namespace diloco {

enum class ChannelKind {
  kControl,  // Unary calls and the long poll.
  kBulk,     // Streams of chunks; resumed by us, so gRPC never retries them.
};

// Deadlines of the control plane (proto/README.md).
inline constexpr absl::Duration kControlDeadline = absl::Seconds(10);
// The longest a server keeps a long poll.
inline constexpr absl::Duration kMaxLongPoll = absl::Seconds(45);
// A chunk's data; with its fields it stays below gRPC's receive limit of
// 4 MiB, which is kept as a guard.
inline constexpr uint64_t kMaxChunkBytes = 1 << 20;

// `target` is host:port. Never goes through a proxy, whatever the environment
// says. Connects when first used and again after failures, at most 1 s apart
// while a call waits.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target,
                                           ChannelKind kind);

// Keeps gRPC's threads until the process ends: with its last channel or server
// it would stop them, and may wait 10 s for one that has missed the signal.
void KeepGrpc();

// From now on, where gRPC takes an instant.
gpr_timespec TimeSpan(absl::Duration span);
void SetTimeout(grpc::ClientContext* context, absl::Duration timeout);

}  // namespace diloco

#endif  // COMMON_RPC_CHANNEL_H_

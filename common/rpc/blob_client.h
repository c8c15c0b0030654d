// What uploads and downloads have in common: options, who speaks, and which
// errors are worth another try.
#ifndef COMMON_RPC_BLOB_CLIENT_H_
#define COMMON_RPC_BLOB_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/backoff.h"
#include "common/base/clock.h"
#include "common/base/fencing.h"
#include "common/io/file_system.h"
#include "common/rpc/blob_connections.h"
#include "common/rpc/channel.h"
#include "common/rpc/line.h"
#include "common/rpc/traffic.h"
#include "common/rpc/transfer_watch.h"
#include "diloco/v1/blob.grpc.pb.h"

namespace diloco {

// Who sends: read before every call, as a restart of the coordinator changes it
// in the middle of a transfer. Thread-safe.
class CallerIdentity {
 public:
  virtual ~CallerIdentity() = default;
  virtual std::string session() const = 0;
  virtual Fencing fencing() const = 0;
  // Every reply's fencing goes through here, together with the one that was
  // read before the call; an error ends the transfer.
  virtual absl::Status Observe(const Fencing& asked,
                               const v1::Fencing& reply) = 0;
};

struct BlobClientOptions {
  // Behaviour.
  std::string peer;  // host:port, for messages.
  absl::Duration control_deadline = kControlDeadline;
  // Without progress for so long a stream is given up and resumed.
  absl::Duration progress_limit = absl::Seconds(60);
  Backoff::Options backoff;

  // Performance. The chunks of a stream start at the smaller size and grow
  // while they take less than a quarter of a second.
  uint64_t min_chunk_bytes = 64 << 10;
  uint64_t max_chunk_bytes = kMaxChunkBytes;

  // Environment; not owned.
  Clock* clock = Clock::Real();
  FileSystem* fs = FileSystem::Posix();
  Line* up = nullptr;                        // Null: one connection, and
  Line* down = nullptr;                      // as fast as it goes.
  TrafficCounter* traffic = nullptr;         // Null: not counted.
  const TransferCancel* shutdown = nullptr;  // Ends all transfers when set.
  std::function<double()> draw;              // Jitter in [0, 1); null: random.
};

namespace blob_internal {

// The peer or the way to it is down: the same call may succeed later.
bool IsTransient(const absl::Status& status);

// A draw for the back-off.
double Draw(const BlobClientOptions& options);

// Logs `status` and waits; CANCELLED when the caller wants no more.
absl::Status PauseBeforeRetry(const BlobClientOptions& options,
                              const std::string& what,
                              const absl::Status& status, Backoff* backoff,
                              const Cancellation& cancel);

}  // namespace blob_internal
}  // namespace diloco

#endif  // COMMON_RPC_BLOB_CLIENT_H_

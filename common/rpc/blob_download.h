// The client half of a resumable download of an immutable file by its digest.
// Used by workers (images, update blobs, the evaluation shard) and by
// `dilococtl export`.
#ifndef COMMON_RPC_BLOB_DOWNLOAD_H_
#define COMMON_RPC_BLOB_DOWNLOAD_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/io/digest.h"
#include "common/rpc/blob_client.h"

namespace diloco {

// Blocks until the file lies at `path`, complete, verified and durable, or a
// permanent error, or `cancel` is set (CANCELLED). Until then the bytes lie in
// `path`.part, and a later call goes on from there. NOT_FOUND: the other side
// no longer has it, resolve again. DATA_LOSS: what came had another digest, or
// more or fewer bytes, twice. `session` may be empty for operator tools.
// Over a long, fast way several connections bring ranges of it (line.h), which
// are still taken in order.
absl::Status DownloadBlob(BlobConnections* connections,
                          const BlobClientOptions& options,
                          const std::string& session, const Digest& digest,
                          uint64_t bytes, const std::string& path,
                          const TransferCancel& cancel);

}  // namespace diloco

#endif  // COMMON_RPC_BLOB_DOWNLOAD_H_

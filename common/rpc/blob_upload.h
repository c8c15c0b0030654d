// The client half of a resumable upload: begin, chunks from where the other
// side stands, finish, wait for its verification. Goes on over lost
// connections and restarts of the coordinator.
#ifndef COMMON_RPC_BLOB_UPLOAD_H_
#define COMMON_RPC_BLOB_UPLOAD_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/io/file_system.h"
#include "common/rpc/blob_client.h"

namespace diloco {

struct UploadResult {
  v1::Verdict verdict = v1::VERDICT_UNSPECIFIED;  // ACCEPTED, LATE or REFUSED.
  std::string reason;
};

// Blocks until there is a verdict, a permanent error or `cancel` is set
// (CANCELLED). `value.bytes` and `value.digest` describe `file`. DATA_LOSS: the
// other side twice found other content than the digest says, so the local file
// is damaged. INVALID_ARGUMENT names a verdict that this build does not know.
// Over a long, fast way several connections carry chunks in turn (line.h), if
// the other side allows it.
absl::StatusOr<UploadResult> UploadBlob(BlobConnections* connections,
                                        const BlobClientOptions& options,
                                        CallerIdentity* identity,
                                        const v1::UpdateKey& key,
                                        const v1::UpdateValue& value,
                                        const ReadableFile& file,
                                        const TransferCancel& cancel);

}  // namespace diloco

#endif  // COMMON_RPC_BLOB_UPLOAD_H_

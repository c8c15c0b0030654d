// Uploads on disk: state/spool/f00-r000012/NAME.DIGEST.part while bytes come
// in, NAME.DIGEST.upd once complete and verified; kept until an image covers
// the round. DIGEST is the beginning of the announced digest, so that no other
// update, whenever it comes, touches the file of one that was accepted.
// Resumable after a restart of either side.
#ifndef COORDINATOR_STORE_SPOOL_H_
#define COORDINATOR_STORE_SPOOL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/io/file_system.h"
#include "common/tensor/part_file.h"
#include "coordinator/core/facts.h"

namespace diloco {

// One upload that is under way. One thread at a time.
class UploadSpool {
 public:
  virtual ~UploadSpool() = default;
  // Where to send from. The bytes before it are in the file and screened; they
  // outlive this process. A power cut may take some of them; Open finds that.
  virtual uint64_t offset() const = 0;
  // `offset` must equal offset(): ABORTED otherwise, naming it. Checks format,
  // checksums and magnitudes as bytes come in. DATA_LOSS: a frame's checksum
  // is wrong and offset() went back to that frame. INVALID_ARGUMENT: the
  // update is unusable for good (every later call repeats it).
  // RESOURCE_EXHAUSTED: disk full, offset() says what is kept, go on once there
  // is room. INTERNAL: the file failed, and every later call says so: Discard
  // it and begin again.
  virtual absl::Status Write(uint64_t offset, absl::string_view bytes) = 0;
  struct Verified {
    float max_abs = 0;
    double norm = 0;
  };
  // Complete? Verifies the digest, fsyncs, renames to .upd, fsyncs the
  // directory. Idempotent. FAILED_PRECONDITION: bytes are missing. DATA_LOSS:
  // the digest differs (the spool starts again at 0). Others as Write.
  virtual absl::StatusOr<Verified> Finish() = 0;
  // An fsync failed: nobody knows what the disk holds, so the process must end.
  // The file is removed; what the page cache still shows of it proves nothing.
  virtual bool sync_failed() const = 0;
};

// Thread-safe; the UploadSpools are not.
class SpoolStore {
 public:
  SpoolStore(FileSystem* fs, std::string dir);

  // Opens a new upload or the one on disk with this digest, whose bytes are
  // screened again. Unfinished ones of the same key with other digests are
  // removed. At most one UploadSpool per key at a time. RESOURCE_EXHAUSTED: no
  // room for it.
  absl::StatusOr<std::unique_ptr<UploadSpool>> Open(uint32_t fragment,
                                                    uint64_t round,
                                                    const std::string& worker,
                                                    const UpdateValue& value,
                                                    PartScreen::Expect expect);
  // A complete one, for the fold. NOT_FOUND names the file.
  absl::StatusOr<PartReader> OpenComplete(uint32_t fragment, uint64_t round,
                                          const std::string& worker,
                                          const Digest& digest);
  // Where a complete one lies.
  std::string CompletePath(uint32_t fragment, uint64_t round,
                           const std::string& worker,
                           const Digest& digest) const;
  // Keeps a refused update as evidence: NAME.DIGEST.refused. OK when there is
  // nothing to keep.
  absl::Status Quarantine(uint32_t fragment, uint64_t round,
                          const std::string& worker, const Digest& digest);
  // Removes an unfinished one. OK when there is none.
  absl::Status Discard(uint32_t fragment, uint64_t round,
                       const std::string& worker, const Digest& digest);
  // Removes the spools of all rounds up to and including `round`, but for the
  // `evidence` refused ones of the newest rounds.
  absl::Status Prune(uint32_t fragment, uint64_t round, size_t evidence = 0);

 private:
  std::string Path(uint32_t fragment, uint64_t round, const std::string& worker,
                   const Digest& digest, absl::string_view suffix) const;
  absl::Status RemoveOthers(const std::string& dir, const std::string& worker,
                            const Digest& digest);

  FileSystem* const fs_;
  const std::string dir_;
};

}  // namespace diloco

#endif  // COORDINATOR_STORE_SPOOL_H_

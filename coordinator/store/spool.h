// Uploads on disk: state/spool/f00-r000012/NAME.part while bytes come in,
// NAME.upd once complete and verified; kept until an image covers the round.
// Resumable after a restart of either side.
#ifndef COORDINATOR_STORE_SPOOL_H_
#define COORDINATOR_STORE_SPOOL_H_

#include <cstdint>
#include <map>
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
  // Bytes that are kept should either side restart now; where to send from.
  virtual uint64_t offset() const = 0;
  // `offset` must equal offset(): ABORTED otherwise, naming it. Checks format,
  // checksums and finiteness as bytes come in; DATA_LOSS: send that frame
  // again from offset(); INVALID_ARGUMENT: the update is unusable for good.
  // RESOURCE_EXHAUSTED: disk full, what was written before is kept.
  virtual absl::Status Write(uint64_t offset, absl::string_view bytes) = 0;
  struct Verified {
    float max_abs = 0;
    double norm = 0;
  };
  // Complete? Verifies the digest, fsyncs, renames to .upd, fsyncs the
  // directory. Idempotent. FAILED_PRECONDITION: bytes are missing. DATA_LOSS:
  // the digest differs (the spool starts again at 0).
  virtual absl::StatusOr<Verified> Finish() = 0;
};

// Thread-safe; the UploadSpools are not.
class SpoolStore {
 public:
  SpoolStore(FileSystem* fs, std::string dir);

  // Opens a new upload or the one on disk under this key. A .part whose
  // recorded value differs from `value` (NAME.meta beside it) is discarded.
  absl::StatusOr<std::unique_ptr<UploadSpool>> Open(uint32_t fragment,
                                                    uint64_t round,
                                                    const std::string& worker,
                                                    const UpdateValue& value,
                                                    PartScreen::Expect expect);
  // A complete one, for the fold.
  absl::StatusOr<PartReader> OpenComplete(uint32_t fragment, uint64_t round,
                                          const std::string& worker);
  // Keeps a refused update as evidence (NAME.refused) instead of .part.
  absl::Status Quarantine(uint32_t fragment, uint64_t round,
                          const std::string& worker);
  // Removes the spools of all rounds up to and including `round`.
  absl::Status Prune(uint32_t fragment, uint64_t round);

 private:
  std::string Path(uint32_t fragment, uint64_t round, const std::string& worker,
                   absl::string_view suffix) const;

  FileSystem* const fs_;
  const std::string dir_;
};

}  // namespace diloco

#endif  // COORDINATOR_STORE_SPOOL_H_

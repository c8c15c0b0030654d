// A worker's checkpoint: everything that lets a restart go on in mid-window,
// bit for bit. Two are kept; a damaged one is passed over for the other.
// Grammar in worker/update/README.md:
//   "DILOCKPT" u32 format=2 u32 header_bytes header(JSON) buffers digest(32)
// A buffer is raw little-endian fp32; the header lists name and elements in
// order. The digest is the block digest of all bytes before it. Format 1, which
// has one fragment only, is read too.
//
//   CheckpointStore store(fs, scratch);
//   RETURN_IF_ERROR(store.Write(header, buffers));
//   ASSIGN_OR_RETURN(auto loaded, store.LoadNewest());
#ifndef WORKER_UPDATE_CHECKPOINT_H_
#define WORKER_UPDATE_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/io/digest.h"
#include "common/io/file_system.h"
#include "common/tensor/codec.h"
#include "worker/core/session_machine.h"

namespace diloco {

// An encoded update in the scratch directory that may not be delivered yet.
struct SpooledUpdate {
  std::string file;  // Name inside the scratch directory.
  uint64_t round = 0;
  uint64_t base_version = 0;
  Digest base_digest;
  uint64_t bytes = 0;
  Digest digest;
  Codec codec = Codec::kFp16;
  uint64_t tokens = 0;
  uint32_t steps = 0;
  double loss = 0;
  double lr_sum = 0;
  uint64_t data_end = 0;
};

// What a worker's work has cost in its life, for the run's report: it outlasts
// the processes. What a crash takes is not counted.
struct WorkTotals {
  uint64_t tokens = 0;
  uint64_t skipped_steps = 0;
  double train_seconds = 0;
  double transfer_seconds = 0;
  double wait_seconds = 0;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;

  friend bool operator==(const WorkTotals&, const WorkTotals&) = default;
};

struct CheckpointHeader {
  uint64_t sequence = 0;  // Of the checkpoint; set by Write.
  std::string run;
  std::string lineage;  // 16 bytes.
  Digest settings_digest;
  Digest layout_digest;
  // Without `evaluated`; an update that was taken is one that is spooled.
  LocalState local;
  uint64_t data_cursor = 0;  // Windows drawn from the shard so far.
  uint64_t inner_steps = 0;  // In this worker's life.
  uint64_t optimizer_steps = 0;
  uint32_t ramp_steps_left = 0;
  WorkTotals totals;
  // By fragment, as many as in `local`.
  std::vector<std::optional<SpooledUpdate>> spooled;
};

using NamedBuffer = std::pair<std::string, std::vector<float>>;

struct Checkpoint {
  CheckpointHeader header;
  std::vector<NamedBuffer> buffers;
};

// One thread at a time.
class CheckpointStore {
 public:
  CheckpointStore(FileSystem* fs, std::string dir);

  // Durable when it returns: temp file, fsync, rename, fsync of the directory.
  absl::Status Write(CheckpointHeader header,
                     absl::Span<const NamedBuffer> buffers);
  // The newest good one, absent when there is none. A damaged file is named in
  // a warning and passed over.
  absl::StatusOr<std::optional<Checkpoint>> LoadNewest();

 private:
  std::string Path(uint64_t sequence) const;

  FileSystem* const fs_;
  const std::string dir_;
  uint64_t next_sequence_ = 1;
};

}  // namespace diloco

#endif  // WORKER_UPDATE_CHECKPOINT_H_

// A consistent copy of a state directory, also while its coordinator runs.
#ifndef COORDINATOR_OFFLINE_RUN_COPY_H_
#define COORDINATOR_OFFLINE_RUN_COPY_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/file_system.h"

namespace diloco {

struct RunCopy {
  uint64_t records = 0;  // Of the journal.
  uint64_t version = 0;  // Of the first fragment.
  uint64_t files = 0;
  uint64_t bytes = 0;
  absl::Status damage;  // Of the journal; what was behind it is not copied.
};

struct CopyOptions {
  // Content of a file kBackupMark; empty: none.
  std::string mark;
  // What is behind damage of the journal is given up, instead of everything.
  bool accept_loss = false;
};

// Where a run lives, other files would be in its way, and a copy of the whole
// would copy itself: INVALID_ARGUMENT when `out` lies in a state directory.
absl::Status CheckOutside(FileSystem* fs, const std::string& out);

// Copies the journal up to its newest whole record, and every file that it
// names and that is there, to `out`, which must not exist; appears under that
// name only once all of it is durable and verified (VerifyRun). The files are
// opened first, so that retention does not take them meanwhile; a copy that it
// did overtake is begun again. `finish` may change each copy before it is
// verified.
// `progress` is told the bytes so far.
absl::StatusOr<RunCopy> CopyRun(
    FileSystem* fs, const std::string& state_dir, const std::string& out,
    const CopyOptions& options,
    const std::function<void(uint64_t bytes)>& progress,
    const std::function<absl::Status(const std::string& dir,
                                     const RunCopy& copy)>& finish);

// A copy with a mark: a coordinator does not start there, as two coordinators
// of one lineage would both count updates. RestoreBackup makes a state
// directory of it.
absl::StatusOr<RunCopy> BackUp(
    FileSystem* fs, const std::string& state_dir, const std::string& out,
    const std::function<void(uint64_t bytes)>& progress);

}  // namespace diloco

#endif  // COORDINATOR_OFFLINE_RUN_COPY_H_

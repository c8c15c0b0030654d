// Moves a run to other versions on purpose: back in the same directory, out of
// a backup, or into a run of its own. Each gives it a new lineage, by which
// workers know that what they hold is of before.
#ifndef COORDINATOR_OFFLINE_LINEAGE_H_
#define COORDINATOR_OFFLINE_LINEAGE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/file_system.h"
#include "coordinator/core/facts.h"

namespace diloco {

// Rebuilds theta and momentum at `version`, writes an image of it where there
// is none, and records that the run goes on from there. What came later stays
// in the journal and does not count. FAILED_PRECONDITION while a coordinator
// runs in `state_dir`; NOT_FOUND when nothing that is kept leads to the
// version. `lineage` is 16 random bytes.
absl::StatusOr<LineageStarted> RollBack(FileSystem* fs,
                                        const std::string& state_dir,
                                        uint64_t version,
                                        const std::string& lineage);

// Copies a backup (or any state directory without a coordinator) to `out`,
// which must not exist, verifies it, and records the new lineage at its newest
// version. Updates of a round that was open or folding are dropped, and with
// `accept_loss` what is behind damage of the journal; the fact's reason says
// so.
absl::StatusOr<LineageStarted> RestoreBackup(
    FileSystem* fs, const std::string& backup, const std::string& out,
    const std::string& lineage, bool accept_loss,
    const std::function<void(uint64_t bytes)>& progress);

struct ForkTarget {
  std::string state_dir;  // Must not exist.
  std::string run;
  std::string settings_text;
  Digest settings_digest;
  Digest layout_digest;
};
// Makes a state directory whose version 0 has theta and momentum of `version`
// of the run in `state_dir`, which is only read and may go on. INVALID_ARGUMENT
// when the model is laid out otherwise.
absl::StatusOr<RunCreated> Fork(FileSystem* fs, const std::string& state_dir,
                                uint64_t version, const ForkTarget& target,
                                const std::string& lineage);

}  // namespace diloco

#endif  // COORDINATOR_OFFLINE_LINEAGE_H_

// Theta and momentum of one fragment, brought from version to version with what
// a state directory holds: the same arithmetic as the coordinator's, and no
// file is written.
#ifndef COORDINATOR_OFFLINE_REPLAY_H_
#define COORDINATOR_OFFLINE_REPLAY_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/aggregate/reproduced.h"
#include "coordinator/offline/run_archive.h"

namespace diloco {

struct FragmentValues {
  uint64_t version = 0;
  std::vector<float> theta;
  std::vector<float> momentum;
};

// Values of the image of `version`. NOT_FOUND: that version has no image, or
// retention took it. INVALID_ARGUMENT: a file is not what the journal records.
absl::StatusOr<FragmentValues> LoadImage(const RunArchive& archive,
                                         uint32_t fragment, uint64_t version);

// Folds a closed round's updates, without those of `without`, into `values`,
// which are its base version's; they become the next version's. NOT_FOUND names
// a spool or blob that is gone; FAILED_PRECONDITION: no member is left. After
// an error `values` are undefined.
absl::StatusOr<FoldResult> FoldRound(RunArchive& archive,
                                     const RoundRecord& round,
                                     const std::set<std::string>& without,
                                     FragmentValues* values);

// Applies the update blob of the next version to theta; momentum is undefined
// then. Checks the blob's digest and theta's.
absl::Status ApplyBlob(const RunArchive& archive, uint32_t fragment,
                       FragmentValues* values);

// The newest image at or before `version` and folds from there. The error of
// the last attempt when no kept image leads there.
absl::StatusOr<FragmentValues> ValuesAt(RunArchive& archive, uint32_t fragment,
                                        uint64_t version);

}  // namespace diloco

#endif  // COORDINATOR_OFFLINE_REPLAY_H_

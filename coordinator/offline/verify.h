// Checks a state directory: every checksum, every reference, and that journal
// and files lead to the published digests again. Changes nothing.
#ifndef COORDINATOR_OFFLINE_VERIFY_H_
#define COORDINATOR_OFFLINE_VERIFY_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/offline/run_archive.h"

namespace diloco {

struct Finding {
  enum class Kind {
    kGood,     // Checked.
    kProblem,  // A start, a worker's catching up or a tool will miss it.
  };
  Kind kind = Kind::kGood;
  std::string text;  // One line: what, which file, what was expected.
};

// Reports each finding as it comes; false when one is a problem.
//  - the settings of the run's creation: their digest
//  - images: digests of the files, theta's digest
//  - update blobs behind the oldest image that they lead on from: digests, and
//    theta's digest at each version when they are applied
//  - rounds whose updates are kept: folded again, all digests compared
//  - accepted updates of the open and the folding round: digests
//  - what a start needs: an image, and the updates behind it
bool VerifyRun(RunArchive& archive,
               const std::function<void(const Finding&)>& report);

// The same of what the journal in `dir` says now, which is the first finding.
// Beside a coordinator retention may take a file that was named when the
// journal was read: where something is wrong and the journal has grown
// meanwhile, all is read again, a few times; problems are those of the last.
// Not OK when the journal cannot be read.
absl::StatusOr<bool> VerifyStateDir(
    FileSystem* fs, const std::string& dir,
    const std::function<void(const Finding&)>& report);

}  // namespace diloco

#endif  // COORDINATOR_OFFLINE_VERIFY_H_

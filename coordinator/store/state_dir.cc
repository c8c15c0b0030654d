#include "coordinator/store/state_dir.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace diloco {

absl::Status CheckMayGoOn(FileSystem* fs, const std::string& state_dir) {
  if (fs->Exists(JoinPath(state_dir, kBackupMark))) {
    return absl::FailedPreconditionError(absl::StrCat(
        state_dir,
        " is a backup: dilococtl restore makes a state directory of it"));
  }
  const std::string superseded = JoinPath(state_dir, kSupersededMark);
  if (!fs->Exists(superseded)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string why, ReadFile(fs, superseded));
  return absl::FailedPreconditionError(absl::StrCat(
      superseded, ": ", absl::StripSuffix(why, "\n"),
      ". Go on with the other state directory; or, if it is lost, make one of "
      "this with dilococtl restore"));
}

}  // namespace diloco

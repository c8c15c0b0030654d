#include "common/rpc/protocol.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/version.h"

namespace diloco {

ProtocolRange OurProtocol() {
  // eval: evaluates slices of theta when named. copy-digest: beats carry the
  // digest of the worker's copy.
  return {.min = 1, .max = 1, .features = {"eval", "copy-digest"}};
}

absl::StatusOr<uint32_t> AgreeOnProtocol(const ProtocolRange& ours,
                                         const ProtocolRange& theirs,
                                         const std::string& their_name,
                                         const std::string& their_build) {
  if (theirs.min == 0 || theirs.min > theirs.max) {
    return absl::InvalidArgumentError(
        absl::StrCat(their_name, " gives protocol versions ", theirs.min,
                     " to ", theirs.max, ", which is no range"));
  }
  const uint32_t version = std::min(ours.max, theirs.max);
  if (version >= std::max(ours.min, theirs.min)) return version;
  return absl::FailedPreconditionError(absl::StrCat(
      their_name, " (build ", absl::CHexEscape(their_build),
      ") speaks protocol ", theirs.min, " to ", theirs.max,
      ", this side (build ", BuildVersion(), ") ", ours.min, " to ", ours.max,
      ": update ", theirs.max < ours.min ? their_name : "this side"));
}

}  // namespace diloco

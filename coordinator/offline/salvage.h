// What a state directory still gives when the end of its journal is lost: used
// by `dilococtl restore --accept-loss`.
#ifndef COORDINATOR_OFFLINE_SALVAGE_H_
#define COORDINATOR_OFFLINE_SALVAGE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/offline/replay.h"
#include "coordinator/offline/run_archive.h"

namespace diloco {

struct Salvaged {
  // Of a version that the journal tells of.
  FragmentValues values;
  // The journal tells of no image that is left: the values are those of an
  // image that was made later, and that has this version in its name. They
  // stand in for the journal's newest version.
  std::optional<uint64_t> later_image;
};
// The newest version of a fragment that can be rebuilt from `archive`, which
// holds the journal before the damage and the files that it names; else the
// newest whole image in the directory `damaged`. NOT_FOUND: neither is there.
absl::StatusOr<Salvaged> Salvage(RunArchive& archive, uint32_t fragment,
                                 const std::string& damaged);

}  // namespace diloco

#endif  // COORDINATOR_OFFLINE_SALVAGE_H_

// Makes a journal with a torn tail whole, as a start of the coordinator would.
#ifndef COORDINATOR_OFFLINE_REPAIR_H_
#define COORDINATOR_OFFLINE_REPAIR_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/io/file_system.h"

namespace diloco {

struct TruncatedTail {
  std::string file;  // The journal's newest segment.
  uint64_t offset = 0;
  uint64_t bytes = 0;  // 0: there was no tail, and nothing was changed.
  std::string copy;    // Where the bytes are kept.
};

// Cuts what stands behind the last whole record of the journal in `state_dir`,
// after a durable copy of it. FAILED_PRECONDITION while a coordinator runs
// there; DATA_LOSS when there are good records behind the damage: recovery
// would not drop those, nor does this.
absl::StatusOr<TruncatedTail> TruncateTail(FileSystem* fs,
                                           const std::string& state_dir);

}  // namespace diloco

#endif  // COORDINATOR_OFFLINE_REPAIR_H_

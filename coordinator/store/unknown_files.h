// Finds what a journal that lost its newest records can no longer explain.
#ifndef COORDINATOR_STORE_UNKNOWN_FILES_H_
#define COORDINATOR_STORE_UNKNOWN_FILES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/io/file_system.h"

namespace diloco {

// The newest of a fragment that there can be files of.
struct KnownFiles {
  uint64_t version = 0;
  uint64_t round = 0;
};

// A blob, an image or a directory of spools in the state directory `dir` of a
// later version or round than `known` (by fragment) says; absent: there is
// none. Other files are nobody's business.
absl::StatusOr<std::optional<std::string>> FindUnknownFile(
    FileSystem* fs, const std::string& dir,
    const std::map<uint32_t, KnownFiles>& known);

}  // namespace diloco

#endif  // COORDINATOR_STORE_UNKNOWN_FILES_H_

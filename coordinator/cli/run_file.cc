#include "coordinator/cli/run_file.h"

#include <cstdio>

#include "common/io/file_system.h"

namespace diloco {

absl::StatusOr<LoadedRun> LoadRunFile(const std::string& path) {
  absl::StatusOr<LoadedRun> loaded = LoadRunConfig(FileSystem::Posix(), path);
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n",
                 std::string(loaded.status().message()).c_str());
    return absl::InvalidArgumentError("");
  }
  return loaded;
}

}  // namespace diloco

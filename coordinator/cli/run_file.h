// Reads a run file for a sub-command: all errors on stderr, one a line, as they
// are, so that editors can jump to them.
#ifndef COORDINATOR_CLI_RUN_FILE_H_
#define COORDINATOR_CLI_RUN_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "coordinator/config.h"

namespace diloco {

// INVALID_ARGUMENT without words once the errors are printed.
absl::StatusOr<LoadedRun> LoadRunFile(const std::string& path);

}  // namespace diloco

#endif  // COORDINATOR_CLI_RUN_FILE_H_

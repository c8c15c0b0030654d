// What a worker's scratch directory remembers of its run: the newest session
// and fencing. Written durably after each join, before the session is used.
#ifndef WORKER_UPDATE_IDENTITY_H_
#define WORKER_UPDATE_IDENTITY_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/fencing.h"
#include "common/io/digest.h"
#include "common/io/file_system.h"

namespace diloco {

struct WorkerIdentity {
  std::string worker;
  std::string run;
  std::string session;  // 16 bytes.
  Fencing fencing;
  Digest settings_digest;
};

// Absent when the directory is fresh. DATA_LOSS names a damaged file.
absl::StatusOr<std::optional<WorkerIdentity>> LoadIdentity(
    FileSystem* fs, const std::string& scratch);
absl::Status SaveIdentity(FileSystem* fs, const std::string& scratch,
                          const WorkerIdentity& identity);

}  // namespace diloco

#endif  // WORKER_UPDATE_IDENTITY_H_

// A file of token ids with what one reading of all of it tells, and with the
// dataset.json that lists it: all that is known before any run's settings are.
// Used by token_dataset.cc and by the worker, which tells the coordinator at
// join what its shard has.
#ifndef WORKER_DATA_TOKEN_SHARD_H_
#define WORKER_DATA_TOKEN_SHARD_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/data/dataset_manifest.h"
#include "common/io/file_system.h"
#include "worker/data/token_file.h"

namespace diloco {

struct TokenShard {
  TokenFile file;
  TokenFile::Scan scan;
  std::optional<DatasetManifest> manifest;  // When one beside it lists it.

  const std::string& path() const { return file.path(); }
};

// Opens and reads the whole file once. INVALID_ARGUMENT when its size is no
// multiple of the width, or when it does not match the dataset.json beside it.
absl::StatusOr<TokenShard> OpenTokenShard(FileSystem* fs,
                                          const std::string& path,
                                          TokenFormat format);

}  // namespace diloco

#endif  // WORKER_DATA_TOKEN_SHARD_H_

// Writes one shard of token ids under a temporary name. Used by tokenize.
#ifndef WORKER_TOOLS_SHARD_WRITER_H_
#define WORKER_TOOLS_SHARD_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/data/dataset_manifest.h"
#include "common/io/digest.h"
#include "common/io/file_system.h"

namespace diloco {

// One thread. The file appears under its name only with Publish; an object
// that goes away before removes what it wrote.
class ShardWriter {
 public:
  // `entry.file` and `entry.split` are set; the rest is counted here.
  static absl::StatusOr<std::unique_ptr<ShardWriter>> Create(
      FileSystem* fs, const std::string& dir, DatasetManifest::Shard entry,
      int width);
  ~ShardWriter();

  // One document of `text_bytes` bytes.
  absl::Status Append(absl::Span<const int32_t> ids, uint64_t text_bytes);
  // Everything is durable under the temporary name after this.
  absl::StatusOr<DatasetManifest::Shard> Finish();
  absl::Status Publish();

 private:
  ShardWriter(FileSystem* fs, const std::string& dir,
              DatasetManifest::Shard entry, int width);
  absl::Status Flush();

  FileSystem* const fs_;
  const std::string path_;
  const std::string temporary_;
  const int width_;
  DatasetManifest::Shard entry_;
  std::unique_ptr<WritableFile> file_;
  BlockDigester digester_;
  std::string buffer_;
  bool published_ = false;
};

}  // namespace diloco

#endif  // WORKER_TOOLS_SHARD_WRITER_H_

// dataset.json: what `tokenize` wrote, beside the shards it wrote. Used by the
// worker's token_dataset to catch a wrong width or a cut file, and by the run
// file, which needs bytes per token of the evaluation shard.
#ifndef COMMON_DATA_DATASET_MANIFEST_H_
#define COMMON_DATA_DATASET_MANIFEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/data/token_format.h"
#include "common/io/file_system.h"

namespace diloco {

inline constexpr char kManifestName[] = "dataset.json";

struct DatasetManifest {
  struct Shard {
    std::string file;   // Relative to the manifest.
    std::string split;  // "train" or "valid".
    uint64_t file_bytes = 0;
    std::string digest;  // Block digest of the file, hexadecimal.
    uint64_t tokens = 0;
    uint64_t documents = 0;
    uint64_t text_bytes = 0;  // Of the documents, for bits per byte.
    uint32_t max_id = 0;
  };
  TokenFormat dtype = TokenFormat::kUint16;
  uint64_t vocab = 0;            // The tokenizer's size.
  std::string tokenizer;         // File beside the manifest, or "bytes".
  std::string tokenizer_digest;  // Block digest; empty for "bytes".
  int64_t eos_id = -1;           // -1: no separator between documents.
  std::vector<Shard> shards;

  // nullptr when the manifest does not list the file.
  const Shard* Find(absl::string_view file) const;
};

std::string ManifestToJson(const DatasetManifest& manifest);
// INVALID_ARGUMENT names file and key.
absl::StatusOr<DatasetManifest> ReadManifest(FileSystem* fs,
                                             const std::string& path);
// The same over the text; `name` is the file in messages.
absl::StatusOr<DatasetManifest> ParseManifest(const std::string& name,
                                              const std::string& text);

}  // namespace diloco

#endif  // COMMON_DATA_DATASET_MANIFEST_H_

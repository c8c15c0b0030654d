// A file of token ids, by memory map: bare little-endian uint16 or uint32, or
// llm.c's shards with their header. Used by token_dataset.cc and the tools.
#ifndef WORKER_DATA_TOKEN_FILE_H_
#define WORKER_DATA_TOKEN_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/data/token_format.h"
#include "common/io/file_system.h"

namespace diloco {

// Thread-safe after Open.
class TokenFile {
 public:
  // INVALID_ARGUMENT for a size that is no multiple of the width or a header
  // that does not describe the file, with expected and actual value.
  static absl::StatusOr<TokenFile> Open(FileSystem* fs, const std::string& path,
                                        TokenFormat format);

  const std::string& path() const { return path_; }
  uint64_t tokens() const { return tokens_; }
  int width() const { return width_; }  // Bytes per id.
  uint64_t file_bytes() const { return bytes_.size(); }

  // Copies ids [first, first + out.size()), which must lie inside the file.
  // DATA_LOSS when the file became shorter since Open: it is checked before
  // every read, because touching a lost page of the map ends the process.
  absl::Status Read(uint64_t first, absl::Span<int32_t> out) const;

  struct Scan {
    uint32_t max_id = 0;
    uint64_t max_position = 0;  // Its first place.
    // Every second id is 0 or 1: 32-bit ids read as 16-bit ones look so.
    bool looks_wider = false;
  };
  // Reads all ids once.
  absl::StatusOr<Scan> ScanIds() const;

 private:
  TokenFile() = default;
  absl::Status CheckSize() const;

  std::string path_;
  std::unique_ptr<ReadableFile> file_;
  absl::Span<const char> bytes_;  // The whole file.
  uint64_t data_start_ = 0;
  uint64_t tokens_ = 0;
  int width_ = 2;
};

}  // namespace diloco

#endif  // WORKER_DATA_TOKEN_FILE_H_

// A shard of token ids as an endless, shuffled stream of training windows.
// Used by the worker's agent (training and evaluation) and by train-local.
//
//   ASSIGN_OR_RETURN(auto data, TokenDataset::Open(fs, "kjv/part0.bin",
//       {.format = TokenFormat::kUint16, .seq_len = 128, .vocab = 2048}));
//   ASSIGN_OR_RETURN(auto ids, data.Next(cursor, 8));  // 8 x 129 ids
//   cursor += 8;
//
// A window is seq_len + 1 ids; windows lie seq_len apart, so that every token
// but the first is predicted once per epoch. The position in the stream is one
// number, the count of windows drawn so far: the order of each epoch follows
// from (seed, epoch), so a restart with the same cursor goes on exactly.
#ifndef WORKER_DATA_TOKEN_DATASET_H_
#define WORKER_DATA_TOKEN_DATASET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/io/file_system.h"
#include "worker/data/token_shard.h"

namespace diloco {

struct DatasetOptions {
  TokenFormat format = TokenFormat::kUint16;
  uint32_t seq_len = 0;  // At least 1.
  uint64_t vocab = 0;    // Rows of the model's embedding.
  uint64_t seed = 0;
};

// Thread-safe.
class TokenDataset {
 public:
  // Both in one: OpenTokenShard, FromShard.
  static absl::StatusOr<TokenDataset> Open(FileSystem* fs,
                                           const std::string& path,
                                           const DatasetOptions& options);
  // INVALID_ARGUMENT when the shard is too short or holds an id that the model
  // does not have (with its position). `options.format` is the shard's.
  static absl::StatusOr<TokenDataset> FromShard(TokenShard shard,
                                                const DatasetOptions& options);

  uint64_t windows() const { return windows_; }  // Per epoch.
  uint64_t tokens() const { return file_.tokens(); }
  uint64_t EpochOf(uint64_t cursor) const { return cursor / windows_; }
  const std::string& path() const { return file_.path(); }

  // The ids of windows cursor .. cursor + count - 1 of the shuffled stream,
  // seq_len + 1 each, row after row. DATA_LOSS as TokenFile::Read.
  absl::StatusOr<std::vector<int32_t>> Next(uint64_t cursor,
                                            uint64_t count) const;
  // The same in file order, for evaluation: windows first .. first + count - 1
  // of the file. OUT_OF_RANGE beyond its end.
  absl::StatusOr<std::vector<int32_t>> InOrder(uint64_t first,
                                               uint64_t count) const;

 private:
  TokenDataset(TokenFile file, const DatasetOptions& options);

  absl::Status ReadWindow(uint64_t index, absl::Span<int32_t> out) const;

  TokenFile file_;
  DatasetOptions options_;
  uint64_t windows_ = 0;
};

}  // namespace diloco

#endif  // WORKER_DATA_TOKEN_DATASET_H_

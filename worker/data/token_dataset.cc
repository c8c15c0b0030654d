// Implements token_dataset.h.
#include "worker/data/token_dataset.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "worker/data/permutation.h"

namespace diloco {
TokenDataset::TokenDataset(TokenFile file, const DatasetOptions& options)
    : file_(std::move(file)), options_(options) {}

absl::StatusOr<TokenDataset> TokenDataset::Open(FileSystem* fs,
                                                const std::string& path,
                                                const DatasetOptions& options) {
  ASSIGN_OR_RETURN(TokenShard shard, OpenTokenShard(fs, path, options.format));
  return FromShard(std::move(shard), options);
}

absl::StatusOr<TokenDataset> TokenDataset::FromShard(
    TokenShard shard, const DatasetOptions& options) {
  DILOCO_CHECK(options.seq_len >= 1 && options.vocab >= 1);
  const std::string path = shard.path();
  const TokenFile::Scan& scan = shard.scan;
  const uint64_t seq_len = options.seq_len;
  if (shard.file.tokens() < seq_len + 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", shard.file.tokens(), " tokens, one window of seq_len ",
        seq_len, " needs ", seq_len + 1, ": use a longer text"));
  }
  const std::string wider = scan.looks_wider
                                ? "; every second id is 0 or 1, as when uint32 "
                                  "ids are read as uint16: check dtype"
                                : "";
  if (scan.max_id >= options.vocab) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": token id ", scan.max_id, " at position ", scan.max_position,
        ", the model's vocabulary has ", options.vocab,
        wider.empty() ? ": tokenize the text again with the run's tokenizer"
                      : wider));
  }
  if (scan.looks_wider) {
    DILOCO_LOG(WARNING) << "shard " << path << wider;
  }
  if (shard.manifest.has_value() && scan.max_id >= shard.manifest->vocab) {
    DILOCO_LOG(WARNING) << "shard " << path << ": token id " << scan.max_id
                        << " at position " << scan.max_position
                        << " is above the tokenizer's size "
                        << shard.manifest->vocab << ", the model has "
                        << options.vocab << " rows";
  }
  TokenDataset dataset(std::move(shard.file), options);
  dataset.windows_ = (dataset.file_.tokens() - 1) / seq_len;
  return dataset;
}

absl::Status TokenDataset::ReadWindow(uint64_t index,
                                      absl::Span<int32_t> out) const {
  return file_.Read(index * options_.seq_len, out);
}

absl::StatusOr<std::vector<int32_t>> TokenDataset::Next(uint64_t cursor,
                                                        uint64_t count) const {
  const uint64_t width = options_.seq_len + uint64_t{1};
  std::vector<int32_t> ids(count * width);
  std::optional<Permutation> order;
  uint64_t epoch = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (!order.has_value() || EpochOf(cursor + i) != epoch) {
      epoch = EpochOf(cursor + i);
      order.emplace(windows_, options_.seed, epoch);
    }
    RETURN_IF_ERROR(ReadWindow(order->At((cursor + i) % windows_),
                               absl::MakeSpan(ids).subspan(i * width, width)));
  }
  return ids;
}

absl::StatusOr<std::vector<int32_t>> TokenDataset::InOrder(
    uint64_t first, uint64_t count) const {
  if (first > windows_ || count > windows_ - first) {
    return absl::OutOfRangeError(absl::StrCat(file_.path(), ": windows ", first,
                                              " to ", first + count,
                                              ", the file has ", windows_));
  }
  const uint64_t width = options_.seq_len + uint64_t{1};
  std::vector<int32_t> ids(count * width);
  for (uint64_t i = 0; i < count; ++i) {
    RETURN_IF_ERROR(
        ReadWindow(first + i, absl::MakeSpan(ids).subspan(i * width, width)));
  }
  return ids;
}

}  // namespace diloco

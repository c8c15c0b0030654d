// Implements token_dataset.h.
#include "worker/data/token_dataset.h"

#include <optional>
#include <utility>

#include "absl/types/span.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/data/dataset_manifest.h"
#include "worker/data/permutation.h"

namespace diloco {
namespace {

// The manifest beside the shard, when there is one and it lists the shard.
absl::StatusOr<std::optional<DatasetManifest>> FindManifest(
    FileSystem* fs, const std::string& path, const std::string& name) {
  const std::string manifest_path = JoinPath(DirName(path), kManifestName);
  if (!fs->Exists(manifest_path)) return std::nullopt;
  ASSIGN_OR_RETURN(DatasetManifest manifest, ReadManifest(fs, manifest_path));
  if (manifest.Find(name) == nullptr) return std::nullopt;
  return manifest;
}

absl::Status CheckManifest(const DatasetManifest& manifest,
                           const std::string& path, const std::string& name,
                           TokenFormat format, FileSystem* fs) {
  if (manifest.dtype != format) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", kManifestName, " states dtype ",
                     TokenFormatName(manifest.dtype), ", configured is ",
                     TokenFormatName(format)));
  }
  ASSIGN_OR_RETURN(const auto file, fs->OpenForRead(path));
  ASSIGN_OR_RETURN(const uint64_t bytes, file->Size());
  const uint64_t stated = manifest.Find(name)->file_bytes;
  if (bytes != stated) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", kManifestName, " states ", stated,
                     " bytes, the file has ", bytes));
  }
  return absl::OkStatus();
}

}  // namespace

TokenDataset::TokenDataset(TokenFile file, const DatasetOptions& options)
    : file_(std::move(file)), options_(options) {}

absl::StatusOr<TokenDataset> TokenDataset::Open(FileSystem* fs,
                                                const std::string& path,
                                                const DatasetOptions& options) {
  DILOCO_CHECK(options.seq_len >= 1 && options.vocab >= 1);
  const std::string name = path.substr(path.rfind('/') + 1);
  ASSIGN_OR_RETURN(const std::optional<DatasetManifest> manifest,
                   FindManifest(fs, path, name));
  if (manifest.has_value()) {
    RETURN_IF_ERROR(CheckManifest(*manifest, path, name, options.format, fs));
  }
  ASSIGN_OR_RETURN(TokenFile file, TokenFile::Open(fs, path, options.format));
  const uint64_t seq_len = options.seq_len;
  if (file.tokens() < seq_len + 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", file.tokens(), " tokens, one window of seq_len ", seq_len,
        " needs ", seq_len + 1));
  }
  ASSIGN_OR_RETURN(const TokenFile::Scan scan, file.ScanIds());
  const std::string hint = scan.looks_wider
                               ? absl::StrCat(
                                     "; every second id is 0 or 1, as when "
                                     "uint32 ids are read as uint16: check "
                                     "dtype")
                               : "";
  if (scan.max_id >= options.vocab) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": token id ", scan.max_id, " at position ", scan.max_position,
        ", the model's vocabulary has ", options.vocab, hint));
  }
  if (scan.looks_wider) {
    DILOCO_LOG(WARNING) << "shard " << path << hint;
  }
  if (manifest.has_value() && scan.max_id >= manifest->vocab) {
    DILOCO_LOG(WARNING) << "shard " << path << ": token id " << scan.max_id
                        << " at position " << scan.max_position
                        << " is above the tokenizer's size " << manifest->vocab
                        << ", the model has " << options.vocab << " rows";
  }
  TokenDataset dataset(std::move(file), options);
  dataset.windows_ = (dataset.file_.tokens() - 1) / seq_len;
  dataset.max_id_ = scan.max_id;
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

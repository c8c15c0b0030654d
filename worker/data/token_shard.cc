// Implements token_shard.h.
#include "worker/data/token_shard.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

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

absl::StatusOr<TokenShard> OpenTokenShard(FileSystem* fs,
                                          const std::string& path,
                                          TokenFormat format) {
  const std::string name = path.substr(path.rfind('/') + 1);
  ASSIGN_OR_RETURN(std::optional<DatasetManifest> manifest,
                   FindManifest(fs, path, name));
  if (manifest.has_value()) {
    RETURN_IF_ERROR(CheckManifest(*manifest, path, name, format, fs));
  }
  ASSIGN_OR_RETURN(TokenFile file, TokenFile::Open(fs, path, format));
  ASSIGN_OR_RETURN(const TokenFile::Scan scan, file.ScanIds());
  return TokenShard{std::move(file), scan, std::move(manifest)};
}

}  // namespace diloco

#include "coordinator/store/spool.h"

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "coordinator/store/upload_file.h"

namespace diloco {
namespace {

constexpr char kPart[] = ".part";
constexpr char kComplete[] = ".upd";
constexpr char kRefused[] = ".refused";
constexpr size_t kDigestChars = 16;

absl::Status RemoveIfThere(FileSystem* fs, const std::string& path) {
  return fs->Exists(path) ? fs->Remove(path) : absl::OkStatus();
}

std::string FileName(const std::string& worker, const Digest& digest,
                     absl::string_view suffix) {
  return absl::StrCat(worker, ".", digest.ToHex().substr(0, kDigestChars),
                      suffix);
}

std::string RoundDir(uint32_t fragment, uint64_t round) {
  return absl::StrFormat("f%02d-r%06d", fragment, round);
}

// The round of a directory of this fragment; absent for any other name.
std::optional<uint64_t> RoundOfDir(const std::string& name, uint32_t fragment) {
  const size_t at = name.find("-r");
  uint64_t round = 0;
  if (at == std::string::npos ||
      !absl::SimpleAtoi(name.substr(at + 2), &round) ||
      name != RoundDir(fragment, round)) {
    return std::nullopt;
  }
  return round;
}

}  // namespace

SpoolStore::SpoolStore(FileSystem* fs, std::string dir)
    : fs_(fs), dir_(std::move(dir)) {}

std::string SpoolStore::Path(uint32_t fragment, uint64_t round,
                             const std::string& worker, const Digest& digest,
                             absl::string_view suffix) const {
  return JoinPath(JoinPath(dir_, RoundDir(fragment, round)),
                  FileName(worker, digest, suffix));
}

absl::Status SpoolStore::RemoveOthers(const std::string& dir,
                                      const std::string& worker,
                                      const Digest& digest) {
  const std::string own = FileName(worker, digest, kPart);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, fs_->List(dir));
  for (const std::string& name : names) {
    // A worker's name may have dots, but never ends with digest and suffix.
    const bool of_worker = name.size() == own.size() &&
                           absl::EndsWith(name, kPart) &&
                           absl::StartsWith(name, absl::StrCat(worker, "."));
    if (!of_worker || name == own) continue;
    RETURN_IF_ERROR(fs_->Remove(JoinPath(dir, name)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<UploadSpool>> SpoolStore::Open(
    uint32_t fragment, uint64_t round, const std::string& worker,
    const UpdateValue& value, PartScreen::Expect expect) {
  // The name becomes a path.
  RETURN_IF_ERROR(ValidateName("worker", worker));
  const uint64_t expected = PartFileBytes(expect.codec, expect.elements);
  if (value.bytes != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("an update of fragment ", fragment, " has ", expected,
                     " bytes, not ", value.bytes));
  }
  const UploadFile::Paths paths = {
      Path(fragment, round, worker, value.digest, kPart),
      Path(fragment, round, worker, value.digest, kComplete)};
  const std::string dir = DirName(paths.part);
  RETURN_IF_ERROR(fs_->CreateDirs(dir));
  RETURN_IF_ERROR(RemoveOthers(dir, worker, value.digest));
  ASSIGN_OR_RETURN(std::unique_ptr<UploadFile> upload,
                   UploadFile::Open(fs_, paths, value, expect));
  return upload;
}

std::string SpoolStore::CompletePath(uint32_t fragment, uint64_t round,
                                     const std::string& worker,
                                     const Digest& digest) const {
  return Path(fragment, round, worker, digest, kComplete);
}

absl::StatusOr<PartReader> SpoolStore::OpenComplete(uint32_t fragment,
                                                    uint64_t round,
                                                    const std::string& worker,
                                                    const Digest& digest) {
  const std::string path = CompletePath(fragment, round, worker, digest);
  ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, fs_->OpenForRead(path));
  return PartReader::Open(std::move(file), path);
}

absl::Status SpoolStore::Quarantine(uint32_t fragment, uint64_t round,
                                    const std::string& worker,
                                    const Digest& digest) {
  const std::string refused = Path(fragment, round, worker, digest, kRefused);
  for (const char* suffix : {kPart, kComplete}) {
    const std::string path = Path(fragment, round, worker, digest, suffix);
    if (fs_->Exists(path)) RETURN_IF_ERROR(fs_->Rename(path, refused));
  }
  return absl::OkStatus();
}

absl::Status SpoolStore::Discard(uint32_t fragment, uint64_t round,
                                 const std::string& worker,
                                 const Digest& digest) {
  return RemoveIfThere(fs_, Path(fragment, round, worker, digest, kPart));
}

absl::Status SpoolStore::Prune(uint32_t fragment, uint64_t round,
                               size_t evidence) {
  if (!fs_->Exists(dir_)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<std::string> names, fs_->List(dir_));
  std::map<uint64_t, std::string, std::greater<>> dirs;  // Newest first.
  for (const std::string& name : names) {
    const std::optional<uint64_t> found = RoundOfDir(name, fragment);
    if (found.has_value() && *found <= round) dirs[*found] = name;
  }
  for (const auto& [number, name] : dirs) {
    const std::string dir = JoinPath(dir_, name);
    ASSIGN_OR_RETURN(const std::vector<std::string> files, fs_->List(dir));
    bool empty = true;
    for (const std::string& file : files) {
      if (evidence > 0 && absl::EndsWith(file, kRefused)) {
        --evidence;
        empty = false;
        continue;
      }
      RETURN_IF_ERROR(fs_->Remove(JoinPath(dir, file)));
    }
    if (empty) RETURN_IF_ERROR(fs_->Remove(dir));
  }
  return absl::OkStatus();
}

}  // namespace diloco

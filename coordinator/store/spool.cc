#include "coordinator/store/spool.h"

#include <bit>
#include <utility>

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
constexpr char kMeta[] = ".meta";
constexpr char kRefused[] = ".refused";

// The value an upload was begun with. Only ever compared as a whole.
std::string MetaText(const UpdateValue& value) {
  return absl::StrCat(
      "diloco spool 1\nbase_version ", value.base_version, "\nbase_digest ",
      value.base_digest.ToHex(), "\nbytes ", value.bytes, "\ndigest ",
      value.digest.ToHex(), "\ncodec ", static_cast<uint32_t>(value.codec),
      "\ntokens ", value.tokens, "\nsteps ", value.steps, "\nloss_bits ",
      absl::Hex(std::bit_cast<uint64_t>(value.loss)), "\n");
}

absl::Status RemoveIfThere(FileSystem* fs, const std::string& path) {
  return fs->Exists(path) ? fs->Remove(path) : absl::OkStatus();
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
                             const std::string& worker,
                             absl::string_view suffix) const {
  return JoinPath(JoinPath(dir_, RoundDir(fragment, round)),
                  absl::StrCat(worker, suffix));
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
  const std::string meta = Path(fragment, round, worker, kMeta);
  const UploadFile::Paths paths = {Path(fragment, round, worker, kPart),
                                   Path(fragment, round, worker, kComplete)};
  RETURN_IF_ERROR(fs_->CreateDirs(DirName(meta)));
  const std::string text = MetaText(value);
  bool same = false;
  if (fs_->Exists(meta)) {
    ASSIGN_OR_RETURN(const std::string recorded,
                     ReadFile(fs_, meta, /*limit=*/1 << 16));
    same = recorded == text;
  }
  if (!same) {
    RETURN_IF_ERROR(RemoveIfThere(fs_, paths.part));
    RETURN_IF_ERROR(RemoveIfThere(fs_, paths.complete));
    RETURN_IF_ERROR(WriteFileAtomic(fs_, meta, text));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<UploadFile> upload,
                   UploadFile::Open(fs_, paths, value, expect));
  return upload;
}

absl::StatusOr<PartReader> SpoolStore::OpenComplete(uint32_t fragment,
                                                    uint64_t round,
                                                    const std::string& worker) {
  const std::string path = Path(fragment, round, worker, kComplete);
  ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, fs_->OpenForRead(path));
  return PartReader::Open(std::move(file), path);
}

absl::Status SpoolStore::Quarantine(uint32_t fragment, uint64_t round,
                                    const std::string& worker) {
  const std::string refused = Path(fragment, round, worker, kRefused);
  for (const char* suffix : {kPart, kComplete}) {
    const std::string path = Path(fragment, round, worker, suffix);
    if (fs_->Exists(path)) RETURN_IF_ERROR(fs_->Rename(path, refused));
  }
  return RemoveIfThere(fs_, Path(fragment, round, worker, kMeta));
}

absl::Status SpoolStore::Prune(uint32_t fragment, uint64_t round) {
  if (!fs_->Exists(dir_)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<std::string> names, fs_->List(dir_));
  for (const std::string& name : names) {
    const std::optional<uint64_t> found = RoundOfDir(name, fragment);
    if (!found.has_value() || *found > round) continue;
    const std::string dir = JoinPath(dir_, name);
    ASSIGN_OR_RETURN(const std::vector<std::string> files, fs_->List(dir));
    for (const std::string& file : files) {
      RETURN_IF_ERROR(fs_->Remove(JoinPath(dir, file)));
    }
    RETURN_IF_ERROR(fs_->Remove(dir));
  }
  return absl::OkStatus();
}

}  // namespace diloco

// Path helpers and whole-file operations on top of any FileSystem; used by
// everything that keeps small files (configuration, state, manifests).
#include "common/io/file_system.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"

namespace diloco {

std::string DirName(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string JoinPath(absl::string_view a, absl::string_view b) {
  if (a.empty()) return std::string(b);
  if (b.empty()) return std::string(a);
  return a.back() == '/' ? absl::StrCat(a, b) : absl::StrCat(a, "/", b);
}

std::string NewNameBeside(FileSystem* fs, const std::string& path) {
  while (true) {
    std::string name = absl::StrCat(path, ".", ToHex(RandomBytes(4)), ".tmp");
    if (!fs->Exists(name)) return name;
  }
}

absl::StatusOr<std::string> ReadFile(FileSystem* fs, const std::string& path,
                                     uint64_t limit) {
  ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, fs->OpenForRead(path));
  ASSIGN_OR_RETURN(const uint64_t size, file->Size());
  if (size > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", size, " bytes; at most ", limit,
                     " are read here: is it the right file?"));
  }
  std::string content(size, '\0');
  RETURN_IF_ERROR(file->ReadAt(0, absl::MakeSpan(&content[0], size)));
  return content;
}

namespace {

absl::Status WriteWhole(FileSystem* fs, const std::string& path,
                        absl::string_view content) {
  ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, fs->OpenForWrite(path));
  // A longer file may be left from an attempt that was cut off.
  RETURN_IF_ERROR(file->Truncate(0));
  RETURN_IF_ERROR(file->WriteAt(0, content));
  return file->Sync();
}

}  // namespace

absl::Status WriteFileAtomic(FileSystem* fs, const std::string& name,
                             absl::string_view content) {
  ASSIGN_OR_RETURN(const std::string path, fs->FollowLinks(name));
  const std::string temporary = absl::StrCat(path, ".tmp");
  absl::Status status = WriteWhole(fs, temporary, content);
  if (status.ok()) status = fs->Rename(temporary, path);
  if (!status.ok()) {
    // Best effort, to give a full disk its space back; the first error counts.
    fs->Remove(temporary).IgnoreError();
    return status;
  }
  return fs->SyncDir(DirName(path));
}

}  // namespace diloco

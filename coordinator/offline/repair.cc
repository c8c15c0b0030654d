#include "coordinator/offline/repair.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/store/journal.h"
#include "coordinator/store/state_dir.h"

namespace diloco {

absl::StatusOr<TruncatedTail> TruncateTail(FileSystem* fs,
                                           const std::string& state_dir) {
  // Before the lock, which makes a file.
  const std::string first = JoinPath(state_dir, SegmentName(1));
  if (!fs->Exists(first)) {
    return absl::NotFoundError(
        absl::StrCat(first, " does not exist: no state directory"));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<FileLock> lock,
                   fs->Lock(JoinPath(state_dir, kLockName)));
  ASSIGN_OR_RETURN(
      const Journal::Scanned scanned,
      Journal::Scan(fs, state_dir, [](const Journal::Record&) -> absl::Status {
        return absl::OkStatus();
      }));
  const std::string path = JoinPath(state_dir, scanned.segments.back().name);
  TruncatedTail tail;
  tail.file = path;
  tail.offset = scanned.segments.back().good_bytes;
  tail.bytes = scanned.tail_bytes;
  if (tail.bytes == 0) return tail;
  ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file,
                   fs->OpenForRead(path));
  std::string bytes(tail.bytes, '\0');
  RETURN_IF_ERROR(
      file->ReadAt(tail.offset, absl::MakeSpan(&bytes[0], bytes.size())));
  tail.copy = absl::StrCat(path, ".tail-", tail.offset);
  // Left by a repair that was killed before it cut, it is the same.
  if (!fs->Exists(tail.copy)) {
    RETURN_IF_ERROR(WriteFileAtomic(fs, tail.copy, bytes));
  } else if (ReadFile(fs, tail.copy).value_or("") != bytes) {
    return absl::AlreadyExistsError(absl::StrCat(
        tail.copy, " is there from an earlier repair and holds other bytes: ",
        "move it away first"));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> journal,
                   fs->OpenForWrite(path));
  RETURN_IF_ERROR(journal->Truncate(tail.offset));
  RETURN_IF_ERROR(journal->Sync());
  return tail;
}

}  // namespace diloco

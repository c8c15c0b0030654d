// The one seam for file I/O: POSIX in the daemons, memory with planted faults
// in tests. Paths are plain strings. Errors carry path, offset and errno text;
// a full disk is RESOURCE_EXHAUSTED, a missing file NOT_FOUND, an existing one
// ALREADY_EXISTS, a failed read or sync DATA_LOSS, anything else (permissions,
// a directory where a file should be) INTERNAL.
//
//   FileSystem* fs = FileSystem::Posix();
//   ASSIGN_OR_RETURN(auto file, fs->OpenForWrite("state/spool/x.part"));
//   RETURN_IF_ERROR(file->WriteAt(offset, bytes));
//   RETURN_IF_ERROR(file->Sync());
#ifndef COMMON_IO_FILE_SYSTEM_H_
#define COMMON_IO_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace diloco {

// A file open for reading. Thread-safe.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  // Fills all of `out` from byte `offset`, or fails with OUT_OF_RANGE when the
  // file ends before that.
  virtual absl::Status ReadAt(uint64_t offset, absl::Span<char> out) const = 0;
  virtual absl::StatusOr<uint64_t> Size() const = 0;
  // The whole file mapped read-only, valid while this object lives. The file
  // must not shrink meanwhile.
  virtual absl::StatusOr<absl::Span<const char>> Map() = 0;
};

// A file open for writing. One thread at a time.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual absl::Status WriteAt(uint64_t offset, absl::string_view bytes) = 0;
  // Bytes that were written are durable when this returns OK. After a failure
  // the content is unknown: the caller gives the file up, it never retries.
  virtual absl::Status Sync() = 0;
  // Starts write-back of what was written so far without waiting for it.
  virtual void StartWriteBack() = 0;
  virtual absl::Status Truncate(uint64_t size) = 0;
  // Reserves space for `size` bytes, without changing Size();
  // RESOURCE_EXHAUSTED when there is none.
  virtual absl::Status Reserve(uint64_t size) = 0;
  virtual absl::StatusOr<uint64_t> Size() const = 0;
};

// An exclusive lock on a path, released with this object or the process.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

// Thread-safe.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(
      const std::string& path) = 0;
  // Opens for writing, creating the file if missing; keeps its content.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWrite(
      const std::string& path) = 0;
  virtual bool Exists(const std::string& path) = 0;
  virtual absl::Status Rename(const std::string& from,
                              const std::string& to) = 0;
  virtual absl::Status Remove(const std::string& path) = 0;
  // Creates the directory and its parents, durably; OK when it exists.
  virtual absl::Status CreateDirs(const std::string& path) = 0;
  // Where a file that is written under this name belongs: `path`, or what it
  // leads to when it is a symbolic link, also one whose target is missing.
  virtual absl::StatusOr<std::string> FollowLinks(const std::string& path) {
    return path;
  }
  // Names (not paths) of the entries, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) = 0;
  // Makes creations, renames and removals inside the directory durable.
  virtual absl::Status SyncDir(const std::string& path) = 0;
  virtual absl::StatusOr<uint64_t> FreeBytes(const std::string& path) = 0;
  // FAILED_PRECONDITION with the holder's pid when somebody else holds it.
  virtual absl::StatusOr<std::unique_ptr<FileLock>> Lock(
      const std::string& path) = 0;

  static FileSystem* Posix();
};

// The directory part of a path ("." when there is none).
std::string DirName(const std::string& path);
std::string JoinPath(absl::string_view a, absl::string_view b);

// A name beside `path` that nothing has, for what is not complete yet. Whoever
// takes it removes it; after a crash it stays.
std::string NewNameBeside(FileSystem* fs, const std::string& path);

// The whole content; refuses files over `limit` bytes.
absl::StatusOr<std::string> ReadFile(FileSystem* fs, const std::string& path,
                                     uint64_t limit = 1ull << 30);

// Durable replacement: `path`.tmp, fsync, rename, fsync of the directory. A
// reader sees the old content or the new one, also after a power cut. A
// symbolic link stays, and what it points to is replaced.
absl::Status WriteFileAtomic(FileSystem* fs, const std::string& path,
                             absl::string_view content);

}  // namespace diloco

#endif  // COMMON_IO_FILE_SYSTEM_H_

// Copies files of one directory tree to the same places of another.
#ifndef COORDINATOR_OFFLINE_COPY_H_
#define COORDINATOR_OFFLINE_COPY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/io/file_system.h"

namespace diloco {

// One thread at a time.
class TreeCopy {
 public:
  // `progress` is told the bytes copied so far, every few MiB.
  TreeCopy(FileSystem* fs, std::string from, std::string to,
           std::function<void(uint64_t bytes)> progress);
  // Opens a file that may be removed before its turn comes; not more than a
  // process may have open. NOT_FOUND: it is gone already.
  absl::Status Hold(const std::string& relative);
  // Copies and fsyncs a file, or its first `bytes`.
  absl::Status File(const std::string& relative, std::optional<uint64_t> bytes);
  // Writes and fsyncs a file of its own.
  absl::Status Write(const std::string& relative, absl::string_view content);
  // A path below `from`, as File takes it.
  std::string Relative(const std::string& path) const;
  // Makes the names durable.
  absl::Status Sync();
  uint64_t files() const { return files_; }
  uint64_t bytes() const { return bytes_; }

 private:
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& relative);

  FileSystem* const fs_;
  const std::string from_;
  const std::string to_;
  const std::function<void(uint64_t)> progress_;
  std::set<std::string> dirs_;
  std::map<std::string, std::unique_ptr<ReadableFile>> held_;
  uint64_t files_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace diloco

#endif  // COORDINATOR_OFFLINE_COPY_H_

// A process's view of a file system that ends with it: once killed, nothing it
// still does changes a file, as after SIGKILL.
#ifndef WORKER_SIMULATE_KILLABLE_FILES_H_
#define WORKER_SIMULATE_KILLABLE_FILES_H_

#include <memory>
#include <string>
#include <vector>

#include "common/io/file_system.h"

namespace diloco::sim {

class KillableFiles final : public FileSystem {
 public:
  explicit KillableFiles(FileSystem* fs)
      : fs_(fs), alive_(std::make_shared<bool>(true)) {}

  // Every later change is CANCELLED. What was written and not synced stays:
  // this is no power cut.
  void Kill() { *alive_ = false; }

  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(
      const std::string& path) override {
    return fs_->OpenForRead(path);
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWrite(
      const std::string& path) override;
  bool Exists(const std::string& path) override { return fs_->Exists(path); }
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status CreateDirs(const std::string& path) override;
  absl::StatusOr<std::string> FollowLinks(const std::string& path) override {
    return fs_->FollowLinks(path);
  }
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) override {
    return fs_->List(path);
  }
  absl::Status SyncDir(const std::string& path) override;
  absl::StatusOr<uint64_t> FreeBytes(const std::string& path) override {
    return fs_->FreeBytes(path);
  }
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(
      const std::string& path) override {
    return fs_->Lock(path);
  }

 private:
  FileSystem* const fs_;
  const std::shared_ptr<bool> alive_;
};

}  // namespace diloco::sim

#endif  // WORKER_SIMULATE_KILLABLE_FILES_H_

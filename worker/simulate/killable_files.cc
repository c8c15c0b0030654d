#include "worker/simulate/killable_files.h"

#include <utility>

#include "common/base/status_macros.h"

namespace diloco::sim {
namespace {

absl::Status CheckAlive(const bool alive) {
  if (alive) return absl::OkStatus();
  return absl::CancelledError("the process was killed");
}

class KillableFile final : public WritableFile {
 public:
  KillableFile(std::unique_ptr<WritableFile> file,
               std::shared_ptr<const bool> alive)
      : file_(std::move(file)), alive_(std::move(alive)) {}

  absl::Status WriteAt(uint64_t offset, absl::string_view bytes) override {
    RETURN_IF_ERROR(CheckAlive(*alive_));
    return file_->WriteAt(offset, bytes);
  }
  absl::Status Sync() override {
    RETURN_IF_ERROR(CheckAlive(*alive_));
    return file_->Sync();
  }
  void StartWriteBack() override { file_->StartWriteBack(); }
  absl::Status Truncate(uint64_t size) override {
    RETURN_IF_ERROR(CheckAlive(*alive_));
    return file_->Truncate(size);
  }
  absl::Status Reserve(uint64_t size) override {
    RETURN_IF_ERROR(CheckAlive(*alive_));
    return file_->Reserve(size);
  }
  absl::StatusOr<uint64_t> Size() const override { return file_->Size(); }

 private:
  const std::unique_ptr<WritableFile> file_;
  const std::shared_ptr<const bool> alive_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WritableFile>> KillableFiles::OpenForWrite(
    const std::string& path) {
  RETURN_IF_ERROR(CheckAlive(*alive_));
  ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, fs_->OpenForWrite(path));
  return std::make_unique<KillableFile>(std::move(file), alive_);
}

absl::Status KillableFiles::Rename(const std::string& from,
                                   const std::string& to) {
  RETURN_IF_ERROR(CheckAlive(*alive_));
  return fs_->Rename(from, to);
}

absl::Status KillableFiles::Remove(const std::string& path) {
  RETURN_IF_ERROR(CheckAlive(*alive_));
  return fs_->Remove(path);
}

absl::Status KillableFiles::CreateDirs(const std::string& path) {
  RETURN_IF_ERROR(CheckAlive(*alive_));
  return fs_->CreateDirs(path);
}

absl::Status KillableFiles::SyncDir(const std::string& path) {
  RETURN_IF_ERROR(CheckAlive(*alive_));
  return fs_->SyncDir(path);
}

}  // namespace diloco::sim

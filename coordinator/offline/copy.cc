#include "coordinator/offline/copy.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace diloco {
namespace {

constexpr uint64_t kPiece = 4 << 20;
// A process may have 1024 files open, as a rule.
constexpr size_t kMaxHeld = 500;

}  // namespace

TreeCopy::TreeCopy(FileSystem* fs, std::string from, std::string to,
                   std::function<void(uint64_t)> progress)
    : fs_(fs),
      from_(std::move(from)),
      to_(std::move(to)),
      progress_(std::move(progress)) {}

std::string TreeCopy::Relative(const std::string& path) const {
  DILOCO_CHECK(path.compare(0, from_.size() + 1, from_ + "/") == 0) << path;
  return path.substr(from_.size() + 1);
}

absl::StatusOr<std::unique_ptr<WritableFile>> TreeCopy::Create(
    const std::string& relative) {
  const std::string path = JoinPath(to_, relative);
  RETURN_IF_ERROR(fs_->CreateDirs(DirName(path)));
  dirs_.insert(DirName(path));
  ++files_;
  return fs_->OpenForWrite(path);
}

absl::Status TreeCopy::Write(const std::string& relative,
                             absl::string_view content) {
  ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> out, Create(relative));
  RETURN_IF_ERROR(out->WriteAt(0, content));
  return out->Sync();
}

absl::Status TreeCopy::Hold(const std::string& relative) {
  if (held_.size() >= kMaxHeld) return absl::OkStatus();
  ASSIGN_OR_RETURN(held_[relative],
                   fs_->OpenForRead(JoinPath(from_, relative)));
  return absl::OkStatus();
}

absl::Status TreeCopy::File(const std::string& relative,
                            std::optional<uint64_t> bytes) {
  std::unique_ptr<ReadableFile> in = std::move(held_[relative]);
  held_.erase(relative);
  if (in == nullptr) {
    ASSIGN_OR_RETURN(in, fs_->OpenForRead(JoinPath(from_, relative)));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> out, Create(relative));
  ASSIGN_OR_RETURN(const uint64_t size, in->Size());
  const uint64_t end = bytes.value_or(size);
  std::string buffer;
  for (uint64_t at = 0; at < end; at += buffer.size()) {
    buffer.resize(std::min(end - at, kPiece));
    RETURN_IF_ERROR(in->ReadAt(at, absl::MakeSpan(&buffer[0], buffer.size())));
    RETURN_IF_ERROR(out->WriteAt(at, buffer));
    out->StartWriteBack();
    bytes_ += buffer.size();
    progress_(bytes_);
  }
  return out->Sync();
}

absl::Status TreeCopy::Sync() {
  for (const std::string& dir : dirs_) RETURN_IF_ERROR(fs_->SyncDir(dir));
  return absl::OkStatus();
}

}  // namespace diloco

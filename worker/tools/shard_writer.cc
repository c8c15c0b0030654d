// Implements shard_writer.h.
#include "worker/tools/shard_writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace diloco {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

}  // namespace

ShardWriter::ShardWriter(FileSystem* fs, const std::string& dir,
                         DatasetManifest::Shard entry, int width)
    : fs_(fs),
      path_(JoinPath(dir, entry.file)),
      temporary_(absl::StrCat(path_, ".tmp")),
      width_(width),
      entry_(std::move(entry)) {}

ShardWriter::~ShardWriter() {
  // Best effort: the error that led here is the one to report.
  if (!published_) fs_->Remove(temporary_).IgnoreError();
}

absl::StatusOr<std::unique_ptr<ShardWriter>> ShardWriter::Create(
    FileSystem* fs, const std::string& dir, DatasetManifest::Shard entry,
    int width) {
  std::unique_ptr<ShardWriter> writer(
      new ShardWriter(fs, dir, std::move(entry), width));
  ASSIGN_OR_RETURN(writer->file_, fs->OpenForWrite(writer->temporary_));
  RETURN_IF_ERROR(writer->file_->Truncate(0));
  return writer;
}

absl::Status ShardWriter::Append(absl::Span<const int32_t> ids,
                                 uint64_t text_bytes) {
  for (const int32_t id : ids) {
    for (int byte = 0; byte < width_; ++byte) {
      buffer_.push_back(
          static_cast<char>(static_cast<uint32_t>(id) >> (8 * byte)));
    }
    entry_.max_id = std::max(entry_.max_id, static_cast<uint32_t>(id));
  }
  entry_.tokens += ids.size();
  entry_.documents += 1;
  entry_.text_bytes += text_bytes;
  return buffer_.size() >= kBufferBytes ? Flush() : absl::OkStatus();
}

absl::Status ShardWriter::Flush() {
  RETURN_IF_ERROR(file_->WriteAt(entry_.file_bytes, buffer_));
  digester_.Update(buffer_);
  entry_.file_bytes += buffer_.size();
  buffer_.clear();
  return absl::OkStatus();
}

absl::StatusOr<DatasetManifest::Shard> ShardWriter::Finish() {
  RETURN_IF_ERROR(Flush());
  RETURN_IF_ERROR(file_->Sync());
  entry_.digest = digester_.Finish().ToHex();
  return entry_;
}

absl::Status ShardWriter::Publish() {
  RETURN_IF_ERROR(fs_->Rename(temporary_, path_));
  published_ = true;
  return absl::OkStatus();
}

}  // namespace diloco

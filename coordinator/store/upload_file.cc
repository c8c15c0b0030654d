#include "coordinator/store/upload_file.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace diloco {
namespace {

// So that the fsync at the end finds most of the file on disk already.
constexpr uint64_t kWriteBackBytes = 8 << 20;
constexpr uint64_t kReadBytes = 1 << 20;

}  // namespace

UploadFile::UploadFile(FileSystem* fs, Paths paths, const UpdateValue& value,
                       PartScreen::Expect expect)
    : fs_(fs),
      paths_(std::move(paths)),
      value_(value),
      expect_(expect),
      prefix_bytes_(PartPrefixBytes(expect.elements)),
      frame_bytes_(EncodedBytes(expect.codec, kFrameElements)),
      screen_(std::make_unique<PartScreen>(expect)) {}

absl::StatusOr<std::unique_ptr<UploadFile>> UploadFile::Open(
    FileSystem* fs, Paths paths, const UpdateValue& value,
    PartScreen::Expect expect) {
  std::unique_ptr<UploadFile> upload(
      new UploadFile(fs, std::move(paths), value, expect));
  upload->renamed_ = fs->Exists(upload->paths_.complete);
  const std::string& path =
      upload->renamed_ ? upload->paths_.complete : upload->paths_.part;
  ASSIGN_OR_RETURN(upload->file_, fs->OpenForWrite(path));
  ASSIGN_OR_RETURN(const uint64_t size, upload->file_->Size());
  RETURN_IF_ERROR(upload->Screen(std::min(size, value.bytes)));
  if (size > upload->received_) {
    RETURN_IF_ERROR(upload->CutTo(upload->received_));
  }
  if (!upload->renamed_) RETURN_IF_ERROR(upload->file_->Reserve(value.bytes));
  return upload;
}

const std::string& UploadFile::Path() const {
  return renamed_ ? paths_.complete : paths_.part;
}

uint64_t UploadFile::PieceBegin(uint64_t offset) const {
  if (offset < prefix_bytes_) return 0;
  return offset - (offset - prefix_bytes_) % frame_bytes_;
}

uint64_t UploadFile::PieceEnd(uint64_t offset) const {
  const uint64_t end = offset < prefix_bytes_
                           ? prefix_bytes_
                           : PieceBegin(offset) + frame_bytes_;
  return std::min(end, value_.bytes);
}

absl::Status UploadFile::GiveUp(const absl::Status& status) {
  failed_ = absl::InternalError(
      absl::StrCat("spool ", paths_.part, " failed: ", status.message()));
  return failed_;
}

absl::Status UploadFile::ScreenOnce(uint64_t end) {
  screen_ = std::make_unique<PartScreen>(expect_);
  received_ = 0;
  if (end == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file,
                   fs_->OpenForRead(Path()));
  std::string buffer;
  while (received_ < end) {
    const uint64_t count = std::min(
        {kReadBytes, PieceEnd(received_) - received_, end - received_});
    buffer.resize(count);
    RETURN_IF_ERROR(
        file->ReadAt(received_, absl::MakeSpan(&buffer[0], buffer.size())));
    // What does not pass is sent again and judged then.
    if (!screen_->Feed(buffer).ok()) return absl::OkStatus();
    received_ += count;
  }
  return absl::OkStatus();
}

absl::Status UploadFile::Screen(uint64_t end) {
  absl::Status status = ScreenOnce(end);
  if (status.ok() && received_ < end) {
    // The screen stays failed: begin again and stop before the bad frame.
    status = ScreenOnce(PieceBegin(received_));
  }
  return status.ok() ? status : GiveUp(status);
}

absl::Status UploadFile::CutTo(uint64_t begin) {
  if (renamed_) {
    // A complete file that is not what it should be is no complete one.
    if (absl::Status status = fs_->Rename(paths_.complete, paths_.part);
        !status.ok()) {
      return GiveUp(status);
    }
    renamed_ = false;
  }
  if (digester_.bytes() > begin) digester_ = BlockDigester();
  const absl::Status status = file_->Truncate(begin);
  return status.ok() ? status : GiveUp(status);
}

absl::Status UploadFile::DigestTo(uint64_t end) {
  const auto digest = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file,
                     fs_->OpenForRead(Path()));
    ASSIGN_OR_RETURN(const absl::Span<const char> bytes, file->Map());
    if (bytes.size() < end) {
      return absl::DataLossError(absl::StrCat(
          "has only ", bytes.size(), " of the ", end, " bytes written to it"));
    }
    const uint64_t begin = digester_.bytes();
    digester_.Update(absl::string_view(bytes.data() + begin, end - begin));
    return absl::OkStatus();
  };
  const absl::Status status = digest();
  return status.ok() ? status : GiveUp(status);
}

absl::Status UploadFile::WritePiece(absl::string_view piece) {
  const absl::Status written = file_->WriteAt(received_, piece);
  if (absl::IsResourceExhausted(written)) return written;
  if (!written.ok()) return GiveUp(written);
  const absl::Status fed = screen_->Feed(piece);
  if (absl::IsDataLoss(fed)) {
    const uint64_t begin = PieceBegin(received_);
    RETURN_IF_ERROR(CutTo(begin));
    RETURN_IF_ERROR(Screen(begin));
    return fed;
  }
  if (!fed.ok()) {
    failed_ = fed;
    return fed;
  }
  received_ += piece.size();
  if (received_ - digester_.bytes() >= kDigestRunBytes) {
    RETURN_IF_ERROR(DigestTo(digester_.bytes() + kDigestRunBytes));
  }
  if (received_ - written_back_ >= kWriteBackBytes) {
    file_->StartWriteBack();
    written_back_ = received_;
  }
  return absl::OkStatus();
}

absl::Status UploadFile::Write(uint64_t offset, absl::string_view bytes) {
  RETURN_IF_ERROR(failed_);
  if (offset != received_) {
    return absl::AbortedError(
        absl::StrCat("bytes at offset ", offset,
                     ", but the upload goes on at offset ", received_));
  }
  if (bytes.size() > value_.bytes - received_) {
    failed_ = absl::InvalidArgumentError(
        absl::StrCat("bytes up to ", received_ + bytes.size(),
                     " of an update of ", value_.bytes, " bytes"));
    return failed_;
  }
  while (!bytes.empty()) {
    const absl::string_view piece =
        bytes.substr(0, PieceEnd(received_) - received_);
    RETURN_IF_ERROR(WritePiece(piece));
    bytes.remove_prefix(piece.size());
  }
  return absl::OkStatus();
}

absl::Status UploadFile::Persist() {
  // Also one that had its final name already: a process may have died between
  // rename and fsync.
  absl::Status synced = file_->Sync();
  if (synced.ok() && !renamed_) {
    const absl::Status named = fs_->Rename(paths_.part, paths_.complete);
    if (absl::IsResourceExhausted(named)) return named;
    if (!named.ok()) return GiveUp(named);
    renamed_ = true;
  }
  if (synced.ok()) synced = fs_->SyncDir(DirName(paths_.complete));
  if (synced.ok()) return synced;
  sync_failed_ = true;
  const std::string& path = Path();
  const absl::Status removed = fs_->Remove(path);
  if (!removed.ok()) {
    DILOCO_LOG(ERROR) << "remove this file before the next start: an fsync of "
                         "it failed, so that it may not hold what it shows "
                         "path="
                      << path << " error=\"" << removed.message() << "\"";
  }
  return GiveUp(synced);
}

absl::StatusOr<UploadSpool::Verified> UploadFile::Finish() {
  if (verified_.has_value()) return *verified_;
  RETURN_IF_ERROR(failed_);
  if (received_ < value_.bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("only ", received_, " of ", value_.bytes,
                     " bytes came: send from offset ", received_));
  }
  RETURN_IF_ERROR(screen_->Finish());
  RETURN_IF_ERROR(DigestTo(value_.bytes));
  const Digest digest = digester_.Finish();
  if (digest != value_.digest) {
    RETURN_IF_ERROR(CutTo(0));
    RETURN_IF_ERROR(Screen(0));
    return absl::DataLossError(absl::StrCat(
        "the update's digest is ", digest.Short(), ", but was announced as ",
        value_.digest.Short(), ": send it again from offset 0"));
  }
  RETURN_IF_ERROR(Persist());
  verified_ = Verified{screen_->max_abs(), std::sqrt(screen_->sum_squares())};
  return *verified_;
}

}  // namespace diloco

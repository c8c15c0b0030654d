#include "coordinator/store/journal.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "coordinator/store/journal_format.h"

namespace diloco {
namespace {

constexpr absl::string_view kChoices =
    "; nothing was changed: restore the state directory from a backup, or copy "
    "it aside and start from the part before the damage";

absl::Status CheckSequence(const RecordView& record, uint64_t expected,
                           uint64_t offset) {
  if (record.sequence == expected) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "record ", expected, " at offset ", offset, " has sequence number ",
      record.sequence, " instead of ", expected,
      ": records are missing or out of order", kChoices));
}

class FileJournal final : public Journal {
 public:
  FileJournal(std::string path, std::unique_ptr<WritableFile> file,
              const Scanned& scanned)
      : path_(std::move(path)),
        file_(std::move(file)),
        end_(scanned.good_bytes),
        last_sequence_(scanned.records) {}

  uint64_t Append(uint32_t type, absl::string_view payload) override {
    AppendRecord(type, ++last_sequence_, payload, &buffer_);
    return last_sequence_;
  }

  absl::Status Commit() override {
    if (!failed_.ok()) return failed_;
    if (buffer_.empty()) return absl::OkStatus();
    absl::Status status = file_->WriteAt(end_, buffer_);
    if (absl::IsResourceExhausted(status)) {
      // What was written of the group goes, so that the file ends with a whole
      // record and the next attempt starts at the same place.
      const absl::Status cut = file_->Truncate(end_);
      if (cut.ok()) return WithContext(status, "journal");
      status = cut;
    }
    if (status.ok()) status = file_->Sync();
    if (!status.ok()) {
      failed_ = absl::Status(
          absl::IsResourceExhausted(status) ? absl::StatusCode::kDataLoss
                                            : status.code(),
          absl::StrCat("journal ", path_,
                       " failed for good: ", status.message(),
                       "; start the coordinator again, it recovers what is on "
                       "disk"));
      return failed_;
    }
    end_ += buffer_.size();
    buffer_.clear();
    return absl::OkStatus();
  }

  uint64_t last_sequence() const override { return last_sequence_; }

 private:
  const std::string path_;
  const std::unique_ptr<WritableFile> file_;
  uint64_t end_;  // Of the last committed record.
  uint64_t last_sequence_;
  std::string buffer_;
  absl::Status failed_;
};

}  // namespace

absl::StatusOr<Journal::Scanned> Journal::Scan(FileSystem* fs,
                                               const std::string& path,
                                               const Visitor& visit) {
  const std::string context = absl::StrCat("journal ", path);
  ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> readable,
                   fs->OpenForRead(path));
  ASSIGN_OR_RETURN(const absl::Span<const char> mapped, readable->Map());
  const absl::string_view file(mapped.data(), mapped.size());
  RETURN_IF_ERROR(WithContext(CheckJournalHeader(file), context));

  Scanned scanned;
  scanned.good_bytes = kJournalHeaderBytes;
  while (scanned.good_bytes < file.size()) {
    const uint64_t offset = scanned.good_bytes;
    const std::optional<RecordView> record = ParseRecord(file, offset);
    if (!record.has_value()) break;
    const uint64_t number = scanned.records + 1;
    RETURN_IF_ERROR(
        WithContext(CheckSequence(*record, number, offset), context));
    RETURN_IF_ERROR(WithContext(
        visit({record->type, record->sequence, record->payload, offset}),
        absl::StrCat(context, ": record ", number, " at offset ", offset)));
    scanned.records = number;
    scanned.good_bytes = record->end;
  }
  scanned.tail_bytes = file.size() - scanned.good_bytes;
  if (scanned.tail_bytes == 0) return scanned;
  const std::optional<uint64_t> behind =
      FindRecordAfter(file, scanned.good_bytes, scanned.records);
  if (behind.has_value()) {
    return absl::DataLossError(
        absl::StrCat(context, ": record ", scanned.records + 1, " at offset ",
                     scanned.good_bytes,
                     " is damaged, but there is a good record at offset ",
                     *behind, kChoices));
  }
  return scanned;
}

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(FileSystem* fs,
                                                       const std::string& path,
                                                       const Visitor& visit) {
  if (!fs->Exists(path)) {
    RETURN_IF_ERROR(fs->CreateDirs(DirName(path)));
    RETURN_IF_ERROR(WriteFileAtomic(fs, path, JournalHeader()));
  }
  // The mapping is gone before the file is cut.
  ASSIGN_OR_RETURN(const Scanned scanned, Scan(fs, path, visit));
  ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, fs->OpenForWrite(path));
  if (scanned.tail_bytes > 0) {
    DILOCO_LOG(WARNING) << "journal tail was torn and is cut file=" << path
                        << " offset=" << scanned.good_bytes
                        << " bytes=" << scanned.tail_bytes
                        << " records=" << scanned.records;
    RETURN_IF_ERROR(file->Truncate(scanned.good_bytes));
    RETURN_IF_ERROR(file->Sync());
  }
  return std::make_unique<FileJournal>(path, std::move(file), scanned);
}

}  // namespace diloco

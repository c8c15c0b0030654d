#include "coordinator/store/journal.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "coordinator/store/journal_format.h"
#include "coordinator/store/state_dir.h"

namespace diloco {
namespace {

// The segment is durable before the head names it, and the head before the
// segment's first record: a segment that had records and is gone is missed.
absl::Status BeginSegment(FileSystem* fs, const std::string& dir,
                          const SegmentHeader& header) {
  RETURN_IF_ERROR(WriteFileAtomic(fs, JoinPath(dir, SegmentName(header.number)),
                                  EncodeSegmentHeader(header)));
  return WriteFileAtomic(fs, JoinPath(dir, kJournalHead),
                         EncodeJournalHead(header.number));
}

class FileJournal final : public Journal {
 public:
  FileJournal(FileSystem* fs, std::string dir, uint64_t segment_bytes,
              std::unique_ptr<WritableFile> file, const Scanned& scanned)
      : fs_(fs),
        dir_(std::move(dir)),
        segment_bytes_(segment_bytes),
        file_(std::move(file)),
        segment_(scanned.segments.back().number),
        end_(scanned.segments.back().good_bytes),
        committed_(scanned.records),
        committed_chain_(scanned.chain),
        last_sequence_(scanned.records),
        chain_(scanned.chain) {}

  uint64_t Append(uint32_t type, absl::string_view payload) override {
    const uint32_t crc =
        AppendRecord(type, ++last_sequence_, payload, &buffer_);
    chain_ = ExtendChain(chain_, crc);
    return last_sequence_;
  }

  absl::Status Commit() override {
    if (!failed_.ok()) return failed_;
    if (buffer_.empty()) return absl::OkStatus();
    absl::Status status;
    if (end_ >= segment_bytes_) {
      status = NextSegment();
      // What is there of it is written anew by the next attempt.
      if (absl::IsResourceExhausted(status)) {
        return WithContext(status, "journal");
      }
    }
    if (status.ok()) {
      status = file_->WriteAt(end_, buffer_);
      if (absl::IsResourceExhausted(status)) {
        // What was written of the group goes, so that the file ends with a
        // whole record and the next attempt starts at the same place.
        const absl::Status cut = file_->Truncate(end_);
        if (cut.ok()) return WithContext(status, "journal");
        status = cut;
      }
    }
    if (status.ok()) status = file_->Sync();
    if (!status.ok()) {
      failed_ = absl::Status(
          absl::IsResourceExhausted(status) ? absl::StatusCode::kDataLoss
                                            : status.code(),
          absl::StrCat("journal ", JoinPath(dir_, SegmentName(segment_)),
                       " failed for good: ", status.message(),
                       "; start the coordinator again, it recovers what is on "
                       "disk"));
      return failed_;
    }
    end_ += buffer_.size();
    buffer_.clear();
    committed_ = last_sequence_;
    committed_chain_ = chain_;
    return absl::OkStatus();
  }

  uint64_t last_sequence() const override { return last_sequence_; }

 private:
  absl::Status NextSegment() {
    const SegmentHeader header = {segment_ + 1, committed_ + 1,
                                  committed_chain_};
    RETURN_IF_ERROR(BeginSegment(fs_, dir_, header));
    ASSIGN_OR_RETURN(
        file_, fs_->OpenForWrite(JoinPath(dir_, SegmentName(header.number))));
    segment_ = header.number;
    end_ = kSegmentHeaderBytes;
    return absl::OkStatus();
  }

  FileSystem* const fs_;
  const std::string dir_;
  const uint64_t segment_bytes_;
  std::unique_ptr<WritableFile> file_;
  uint32_t segment_;
  uint64_t end_;        // Of the last committed record, in the segment.
  uint64_t committed_;  // Its sequence number.
  uint32_t committed_chain_;
  uint64_t last_sequence_;
  uint32_t chain_;
  std::string buffer_;
  absl::Status failed_;
};

// Puts the header of today before the records of format 1, so that a version
// that knows only that one does not take the file for the whole journal.
absl::Status Upgrade(FileSystem* fs, const std::string& dir,
                     Journal::Scanned* scanned) {
  Journal::Segment& segment = scanned->segments.back();
  const std::string path = JoinPath(dir, segment.name);
  std::string bytes = EncodeSegmentHeader(SegmentHeader());
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> old,
                     fs->OpenForRead(path));
    const size_t header_bytes = bytes.size();
    bytes.resize(header_bytes + segment.good_bytes - segment.header_bytes);
    RETURN_IF_ERROR(old->ReadAt(
        segment.header_bytes,
        absl::MakeSpan(&bytes[0], bytes.size()).subspan(header_bytes)));
  }
  RETURN_IF_ERROR(WriteFileAtomic(fs, path, bytes));
  DILOCO_LOG(INFO) << "journal of format 1 is now of the format of this "
                      "version file="
                   << path << " records=" << scanned->records;
  segment.good_bytes = bytes.size();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(FileSystem* fs,
                                                       const std::string& dir,
                                                       const Visitor& visit,
                                                       uint64_t segment_bytes) {
  const std::string head = JoinPath(dir, kJournalHead);
  if (!fs->Exists(head) && !fs->Exists(JoinPath(dir, SegmentName(1)))) {
    RETURN_IF_ERROR(fs->CreateDirs(dir));
    // An empty directory; Scan refuses one with later segments in it.
    const absl::StatusOr<Scanned> nothing = Scan(fs, dir, visit);
    if (!absl::IsNotFound(nothing.status())) return nothing.status();
    RETURN_IF_ERROR(BeginSegment(fs, dir, SegmentHeader()));
  }
  // The mapping is gone before the file is cut.
  ASSIGN_OR_RETURN(Scanned scanned, Scan(fs, dir, visit));
  const std::string path = JoinPath(dir, scanned.segments.back().name);
  if (scanned.tail_bytes > 0) {
    const uint64_t end = scanned.segments.back().good_bytes;
    DILOCO_LOG(WARNING) << "journal tail was torn and is cut file=" << path
                        << " offset=" << end << " bytes=" << scanned.tail_bytes
                        << " records=" << scanned.records;
    ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> torn,
                     fs->OpenForWrite(path));
    RETURN_IF_ERROR(torn->Truncate(end));
  }
  if (scanned.segments.back().format == 1) {
    RETURN_IF_ERROR(Upgrade(fs, dir, &scanned));
  }
  // The end may have come between a segment and the head, and format 1 has
  // none.
  if (scanned.head != scanned.segments.back().number) {
    RETURN_IF_ERROR(WriteFileAtomic(
        fs, head, EncodeJournalHead(scanned.segments.back().number)));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, fs->OpenForWrite(path));
  // The process before may have ended between a write and its fsync. What was
  // read counts from now on, and the next commit may go to another segment.
  RETURN_IF_ERROR(file->Sync());
  return std::make_unique<FileJournal>(fs, dir, segment_bytes, std::move(file),
                                       scanned);
}

}  // namespace diloco

// Reading a journal: its segments in order, each against the one before.

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/store/journal.h"
#include "coordinator/store/journal_format.h"
#include "coordinator/store/state_dir.h"

namespace diloco {
namespace {

constexpr absl::string_view kChoices =
    "; nothing was changed: restore the state directory from a backup, or give "
    "up that record and all behind it with dilococtl restore --accept-loss";

// Numbers of the segments that are there, ascending.
absl::StatusOr<std::vector<uint32_t>> ListSegments(FileSystem* fs,
                                                   const std::string& dir) {
  std::vector<uint32_t> numbers;
  const absl::StatusOr<std::vector<std::string>> names = fs->List(dir);
  if (absl::IsNotFound(names.status())) return numbers;
  RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    if (!absl::StartsWith(name, "journal-") || !absl::EndsWith(name, ".log")) {
      continue;
    }
    uint32_t number = 0;
    const std::string digits = name.substr(8, name.size() - 12);
    if (absl::SimpleAtoi(digits, &number) && SegmentName(number) == name) {
      numbers.push_back(number);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// The newest segment that was begun; absent: nobody has said.
absl::StatusOr<std::optional<uint32_t>> ReadHead(FileSystem* fs,
                                                 const std::string& dir) {
  const std::string path = JoinPath(dir, kJournalHead);
  if (!fs->Exists(path)) return std::nullopt;
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(fs, path));
  const absl::StatusOr<uint32_t> newest = ParseJournalHead(bytes);
  if (newest.ok()) return *newest;
  return WithContext(newest.status(), path);
}

absl::Status Missing(const std::string& dir, uint32_t number,
                     uint64_t first_record, const std::string& evidence) {
  return absl::DataLossError(absl::StrCat(
      JoinPath(dir, SegmentName(number)), " is missing, with record ",
      first_record, " and those behind it: ", evidence, kChoices));
}

absl::Status CheckRecordSequence(uint64_t found, uint64_t expected,
                                 uint64_t offset) {
  if (found == expected) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("record ", expected, " at offset ", offset,
                   " has sequence number ", found, " instead of ", expected,
                   ": records are missing or out of order", kChoices));
}

class Scanner {
 public:
  Scanner(FileSystem* fs, std::string dir, const Journal::Visitor& visit)
      : fs_(fs), dir_(std::move(dir)), visit_(visit) {}

  absl::StatusOr<Journal::Scanned> Run() {
    // The head first: what it names is there before it is named, and a
    // coordinator may begin another segment meanwhile.
    ASSIGN_OR_RETURN(const std::optional<uint32_t> head, ReadHead(fs_, dir_));
    RETURN_IF_ERROR(ReadSegments(head));
    return std::move(scanned_);
  }

  absl::StatusOr<Journal::Scanned> RunToDamage() {
    const absl::StatusOr<std::optional<uint32_t>> head = ReadHead(fs_, dir_);
    absl::Status status = head.status();
    if (status.ok() || absl::IsDataLoss(status)) {
      const absl::Status read =
          ReadSegments(head.ok() ? *head : std::optional<uint32_t>());
      if (!read.ok()) status = read;
    }
    // A record that cannot be understood is whole: no damage of the journal.
    if (!status.ok() && (!absl::IsDataLoss(status) || visitor_failed_ ||
                         scanned_.records == 0)) {
      return status;
    }
    if (segment_.good_bytes > segment_.header_bytes) TakeSegment();
    scanned_.tail_bytes = 0;
    scanned_.damage = status;
    return std::move(scanned_);
  }

 private:
  absl::Status ReadSegments(std::optional<uint32_t> head) {
    ASSIGN_OR_RETURN(const std::vector<uint32_t> numbers,
                     ListSegments(fs_, dir_));
    if (numbers.empty() && !head.has_value()) {
      return absl::NotFoundError(absl::StrCat(
          JoinPath(dir_, SegmentName(1)), " does not exist: ", dir_,
          " is no state directory: give the one that the run file names as "
          "state.dir"));
    }
    scanned_.head = head.value_or(0);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const auto number = static_cast<uint32_t>(i + 1);
      if (numbers[i] != number) {
        return Missing(dir_, number, scanned_.records + 1,
                       absl::StrCat(SegmentName(numbers[i]), " is there"));
      }
      RETURN_IF_ERROR(WithContext(
          ReadSegment(number, number == numbers.size()),
          absl::StrCat("journal ", JoinPath(dir_, SegmentName(number)))));
    }
    if (head.has_value() && *head > numbers.size()) {
      return Missing(dir_, static_cast<uint32_t>(numbers.size() + 1),
                     scanned_.records + 1,
                     absl::StrCat(kJournalHead, " says that ",
                                  SegmentName(*head), " was begun"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckHeader(const SegmentHeader& header, uint32_t number) {
    const SegmentHeader expected = {number, scanned_.records + 1,
                                    scanned_.chain};
    if (header == expected) return absl::OkStatus();
    if (header.number != number) {
      return absl::DataLossError(absl::StrCat(
          "it is ", SegmentName(header.number), " under another name: record ",
          scanned_.records + 1, " was expected at offset ", kSegmentHeaderBytes,
          ", it begins with ", header.first_sequence, kChoices));
    }
    return absl::DataLossError(absl::StrCat(
        "it does not go on from ",
        number == 1 ? "the beginning" : SegmentName(number - 1), ": record ",
        scanned_.records + 1, " was expected at offset ", kSegmentHeaderBytes,
        " and it begins with ", header.first_sequence,
        header.first_sequence == expected.first_sequence
            ? ", behind other records than those that are there"
            : "",
        "; one of the two is of another journal or of another time", kChoices));
  }

  absl::Status ReadSegment(uint32_t number, bool newest) {
    const std::string name = SegmentName(number);
    ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> readable,
                     fs_->OpenForRead(JoinPath(dir_, name)));
    ASSIGN_OR_RETURN(const absl::Span<const char> mapped, readable->Map());
    const absl::string_view file(mapped.data(), mapped.size());
    const absl::StatusOr<ParsedSegmentHeader> parsed = ParseSegmentHeader(file);
    if (absl::IsDataLoss(parsed.status())) {
      return absl::DataLossError(absl::StrCat(
          parsed.status().message(), ": record ", scanned_.records + 1,
          " was expected at offset ", kSegmentHeaderBytes, kChoices));
    }
    RETURN_IF_ERROR(parsed.status());
    RETURN_IF_ERROR(CheckHeader(parsed->header, number));
    segment_ = {name, number, parsed->format, parsed->bytes, parsed->bytes};
    while (segment_.good_bytes < file.size()) {
      const uint64_t offset = segment_.good_bytes;
      const std::optional<RecordView> record = ParseRecord(file, offset);
      if (!record.has_value()) break;
      const uint64_t next = scanned_.records + 1;
      RETURN_IF_ERROR(CheckRecordSequence(record->sequence, next, offset));
      const absl::Status visited = visit_(
          {record->type, record->sequence, record->payload, number, offset});
      visitor_failed_ = !visited.ok();
      RETURN_IF_ERROR(WithContext(
          visited, absl::StrCat("record ", next, " at offset ", offset)));
      scanned_.records = next;
      scanned_.chain = ExtendChain(scanned_.chain, record->crc);
      segment_.good_bytes = record->end;
    }
    RETURN_IF_ERROR(CheckTail(file, segment_, newest));
    scanned_.tail_bytes = file.size() - segment_.good_bytes;
    TakeSegment();
    return absl::OkStatus();
  }

  void TakeSegment() {
    scanned_.good_bytes += segment_.good_bytes;
    scanned_.segments.push_back(std::move(segment_));
    segment_ = Journal::Segment();
  }

  // Only the last write can be torn: there is nothing good behind it.
  absl::Status CheckTail(absl::string_view file,
                         const Journal::Segment& segment, bool newest) {
    if (file.size() == segment.good_bytes) return absl::OkStatus();
    const std::optional<uint64_t> behind =
        FindRecordAfter(file, segment.good_bytes, scanned_.records);
    if (newest && !behind.has_value()) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(
        "record ", scanned_.records + 1, " at offset ", segment.good_bytes,
        " is damaged, but there is ",
        behind.has_value()
            ? absl::StrCat("a good record at offset ", *behind)
            : absl::StrCat(SegmentName(segment.number + 1), " behind it"),
        kChoices));
  }

  FileSystem* const fs_;
  const std::string dir_;
  const Journal::Visitor& visit_;
  Journal::Scanned scanned_;
  Journal::Segment segment_;  // Being read.
  bool visitor_failed_ = false;
};

}  // namespace

absl::StatusOr<Journal::Scanned> Journal::Scan(FileSystem* fs,
                                               const std::string& dir,
                                               const Visitor& visit) {
  return Scanner(fs, dir, visit).Run();
}

absl::StatusOr<Journal::Scanned> Journal::ScanGood(FileSystem* fs,
                                                   const std::string& dir,
                                                   const Visitor& visit) {
  return Scanner(fs, dir, visit).RunToDamage();
}

}  // namespace diloco

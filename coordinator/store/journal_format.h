// The bytes of the journal's files (grammar in README.md): headers, records and
// the head file, without any I/O. Used by journal*.cc, and by what copies a
// journal.
#ifndef COORDINATOR_STORE_JOURNAL_FORMAT_H_
#define COORDINATOR_STORE_JOURNAL_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace diloco {

inline constexpr size_t kSegmentHeaderBytes = 40;
inline constexpr size_t kRecordHeaderBytes = 20;
inline constexpr size_t kRecordAlign = 8;
inline constexpr uint32_t kMaxRecordPayload = 64u << 20;

// What a segment says of itself.
struct SegmentHeader {
  uint32_t number = 1;
  uint64_t first_sequence = 1;  // Of its first record.
  uint32_t chain = 0;           // ExtendChain over all records before.

  friend bool operator==(const SegmentHeader&, const SegmentHeader&) = default;
};
std::string EncodeSegmentHeader(const SegmentHeader& header);

struct ParsedSegmentHeader {
  SegmentHeader header;
  uint32_t format = 0;
  size_t bytes = 0;  // Of the header; the first record is behind them.
};
// Format 1 was one file and says nothing of itself: it is segment 1.
// FAILED_PRECONDITION: not a journal, or of a newer format. DATA_LOSS: damaged.
absl::StatusOr<ParsedSegmentHeader> ParseSegmentHeader(absl::string_view file);

// The checksum of the record.
uint32_t AppendRecord(uint32_t type, uint64_t sequence,
                      absl::string_view payload, std::string* out);

struct RecordView {
  uint32_t type = 0;
  uint64_t sequence = 0;
  absl::string_view payload;
  uint32_t crc = 0;
  uint64_t end = 0;  // Offset behind it.
};
// The record that begins at `offset`; absent when its bytes are not a whole
// record with a matching checksum.
std::optional<RecordView> ParseRecord(absl::string_view file, uint64_t offset);

// Offset of the first whole record behind `offset` with a sequence number
// above `sequence`; absent when there is none.
std::optional<uint64_t> FindRecordAfter(absl::string_view file, uint64_t offset,
                                        uint64_t sequence);

// Stands for all records up to one, whose checksum is `crc`; 0 before the
// first.
uint32_t ExtendChain(uint32_t chain, uint32_t crc);

// The file that names the newest segment.
std::string EncodeJournalHead(uint32_t segment);
// FAILED_PRECONDITION: of a newer format. DATA_LOSS: anything else.
absl::StatusOr<uint32_t> ParseJournalHead(absl::string_view file);

}  // namespace diloco

#endif  // COORDINATOR_STORE_JOURNAL_FORMAT_H_

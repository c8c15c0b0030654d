// The bytes of the journal file (grammar in README.md): header and records,
// without any I/O. Used by journal.cc only.
#ifndef COORDINATOR_STORE_JOURNAL_FORMAT_H_
#define COORDINATOR_STORE_JOURNAL_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace diloco {

inline constexpr size_t kJournalHeaderBytes = 16;
inline constexpr size_t kRecordHeaderBytes = 20;
inline constexpr size_t kRecordAlign = 8;
inline constexpr uint32_t kMaxRecordPayload = 64u << 20;

std::string JournalHeader();
// FAILED_PRECONDITION: not a journal, or of a newer format. DATA_LOSS: damaged.
absl::Status CheckJournalHeader(absl::string_view file);

void AppendRecord(uint32_t type, uint64_t sequence, absl::string_view payload,
                  std::string* out);

struct RecordView {
  uint32_t type = 0;
  uint64_t sequence = 0;
  absl::string_view payload;
  uint64_t end = 0;  // Offset behind it.
};
// The record that begins at `offset`; absent when its bytes are not a whole
// record with a matching checksum.
std::optional<RecordView> ParseRecord(absl::string_view file, uint64_t offset);

// Offset of the first whole record behind `offset` with a sequence number
// above `sequence`; absent when there is none.
std::optional<uint64_t> FindRecordAfter(absl::string_view file, uint64_t offset,
                                        uint64_t sequence);

}  // namespace diloco

#endif  // COORDINATOR_STORE_JOURNAL_FORMAT_H_

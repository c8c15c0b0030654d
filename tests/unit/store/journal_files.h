// A journal on a file system in memory, for its tests.
#ifndef TESTS_UNIT_STORE_JOURNAL_FILES_H_
#define TESTS_UNIT_STORE_JOURNAL_FILES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "coordinator/store/journal.h"
#include "tests/support/catch.h"
#include "tests/support/fault_file_system.h"

namespace diloco {

inline constexpr char kJournalDir[] = "state";
inline constexpr char kFirstSegment[] = "state/journal-000001.log";

struct OpenedJournal {
  absl::StatusOr<std::unique_ptr<Journal>> journal;
  std::vector<std::string> payloads;
  std::vector<uint64_t> offsets;
};

inline std::string SamplePayload(uint64_t n) {
  return absl::StrCat("payload ", n, std::string(n % 9, 'x'));
}

inline OpenedJournal OpenJournal(
    FileSystem* fs, uint64_t segment_bytes = Journal::kSegmentBytes) {
  SetLogLevel(LogLevel::kError);  // A line for each torn tail would be many.
  OpenedJournal opened{absl::UnknownError(""), {}, {}};
  opened.journal = Journal::Open(
      fs, kJournalDir,
      [&](const Journal::Record& record) {
        REQUIRE(record.sequence == opened.payloads.size() + 1);
        REQUIRE(record.type == 100 + record.sequence);
        opened.payloads.emplace_back(record.payload);
        opened.offsets.push_back(record.offset);
        return absl::OkStatus();
      },
      segment_bytes);
  return opened;
}

inline void AppendSample(Journal& journal) {
  const uint64_t next = journal.last_sequence() + 1;
  REQUIRE(journal.Append(static_cast<uint32_t>(100 + next),
                         SamplePayload(next)) == next);
}

// Opens the journal and commits `records` more, one by one.
inline void GrowJournal(FileSystem* fs, int records,
                        uint64_t segment_bytes = Journal::kSegmentBytes) {
  OpenedJournal opened = OpenJournal(fs, segment_bytes);
  REQUIRE(opened.journal.ok());
  for (int i = 0; i < records; ++i) {
    AppendSample(**opened.journal);
    REQUIRE((*opened.journal)->Commit().ok());
  }
}

}  // namespace diloco

#endif  // TESTS_UNIT_STORE_JOURNAL_FILES_H_

// The journal: an append-only sequence of checksummed records in segment files
// journal-000001.log, journal-000002.log, ... of one directory. Knows nothing
// about facts. Grammar in coordinator/store/README.md.
//
//   ASSIGN_OR_RETURN(auto journal, Journal::Open(fs, "state", visit));
//   uint64_t seq = journal->Append(type, payload);   // buffered
//   RETURN_IF_ERROR(journal->Commit());               // written and fsynced
#ifndef COORDINATOR_STORE_JOURNAL_H_
#define COORDINATOR_STORE_JOURNAL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/io/file_system.h"

namespace diloco {

// One thread at a time.
class Journal {
 public:
  struct Record {
    uint32_t type = 0;
    uint64_t sequence = 0;  // From 1, without gaps.
    absl::string_view payload;
    uint32_t segment = 0;
    uint64_t offset = 0;  // Of the record in the segment.
  };
  // `record` is valid during the call only.
  using Visitor = std::function<absl::Status(const Record&)>;

  // The next commit after a segment has this size begins another one.
  static constexpr uint64_t kSegmentBytes = 64ull << 20;

  // Opens the journal of `dir`, or creates both, and visits every record. A
  // torn or zero tail of the newest segment is cut with a warning that gives
  // offset and bytes; a journal of format 1 becomes one of the format of today.
  // A bad record with a good one behind it, a gap in the sequence, a segment
  // that is missing, empty or of another journal, a foreign or newer format:
  // DATA_LOSS or FAILED_PRECONDITION with file, offset and record number;
  // nothing is changed.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(
      FileSystem* fs, const std::string& dir, const Visitor& visit,
      uint64_t segment_bytes = kSegmentBytes);
  virtual ~Journal() = default;

  struct Segment {
    std::string name;  // In the directory.
    uint32_t number = 0;
    uint32_t format = 0;
    uint64_t header_bytes = 0;
    uint64_t good_bytes = 0;  // Header and whole records.
  };
  struct Scanned {
    uint64_t records = 0;
    uint64_t good_bytes = 0;  // Of all segments.
    uint64_t tail_bytes = 0;  // Torn or zero, behind those of the newest.
    uint32_t chain = 0;       // Of all records.
    uint32_t head = 0;        // The newest segment that was begun; 0: unsaid.
    std::vector<Segment> segments;
    absl::Status damage;  // Of ScanGood: what ended it.
  };
  // Visits every record without changing anything, also while a coordinator
  // appends: for offline tools. Errors as Open's; NOT_FOUND when there is no
  // journal; a torn tail is no error.
  static absl::StatusOr<Scanned> Scan(FileSystem* fs, const std::string& dir,
                                      const Visitor& visit);

  // The same, but damage (DATA_LOSS) only ends it: for whoever accepts the loss
  // of what is behind. DATA_LOSS when no record is before it.
  static absl::StatusOr<Scanned> ScanGood(FileSystem* fs,
                                          const std::string& dir,
                                          const Visitor& visit);

  // Buffers a record; its sequence number.
  virtual uint64_t Append(uint32_t type, absl::string_view payload) = 0;
  // Writes and fsyncs all buffered records: one group commit.
  // RESOURCE_EXHAUSTED: disk full; nothing of the group is on disk, all of it
  // stays buffered, and Commit may be called again once there is room. Any
  // other failure is final and every later Commit repeats it: after a failed
  // fsync nobody knows what the disk holds.
  virtual absl::Status Commit() = 0;
  virtual uint64_t last_sequence() const = 0;
};

}  // namespace diloco

#endif  // COORDINATOR_STORE_JOURNAL_H_

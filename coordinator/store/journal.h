// The journal file: an append-only sequence of checksummed records. Knows
// nothing about facts. Grammar in coordinator/store/README.md:
//   file   = "DILOJRNL" u32 format=1 u32 crc32c(first 12 bytes) record*
//   record = u32 payload_bytes  u32 type  u64 sequence  u32 crc32c(the 16 bytes
//            before, payload)  payload  zero padding to a multiple of 8
//
//   ASSIGN_OR_RETURN(auto journal, Journal::Open(fs, path, visit));
//   uint64_t seq = journal->Append(type, payload);   // buffered
//   RETURN_IF_ERROR(journal->Commit());               // written and fsynced
#ifndef COORDINATOR_STORE_JOURNAL_H_
#define COORDINATOR_STORE_JOURNAL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

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
    uint64_t offset = 0;  // Of the record in the file.
  };
  // `record` is valid during the call only.
  using Visitor = std::function<absl::Status(const Record&)>;

  // Opens the file, or creates it with its directory, and visits every record.
  // A torn or zero tail is cut with a warning that gives offset and bytes. A
  // bad record with a good one behind it, a gap in the sequence, a foreign or
  // newer format: DATA_LOSS or FAILED_PRECONDITION with file, offset and record
  // number; nothing is changed.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(FileSystem* fs,
                                                       const std::string& path,
                                                       const Visitor& visit);
  virtual ~Journal() = default;

  // Visits every record without changing anything: for offline tools. Errors as
  // Open's; a torn tail is no error.
  struct Scanned {
    uint64_t records = 0;
    uint64_t good_bytes = 0;  // Header and whole records.
    uint64_t tail_bytes = 0;  // Torn or zero behind them.
  };
  static absl::StatusOr<Scanned> Scan(FileSystem* fs, const std::string& path,
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

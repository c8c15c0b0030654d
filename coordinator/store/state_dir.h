// Names within a state directory; what stands in them: README.md.
#ifndef COORDINATOR_STORE_STATE_DIR_H_
#define COORDINATOR_STORE_STATE_DIR_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/io/file_system.h"

namespace diloco {

// A segment of the journal, from 1 on, and which is the newest.
inline std::string SegmentName(uint32_t number) {
  return absl::StrFormat("journal-%06d.log", number);
}
inline constexpr char kJournalHead[] = "journal.head";
inline constexpr char kLockName[] = "LOCK";
// Settings in words: those of the run's creation, and those of the run file at
// the last start.
inline constexpr char kSettingsFile[] = "settings.txt";
inline constexpr char kRunFileSettings[] = "run_file.txt";
// Only in backups: a coordinator refuses to start there.
inline constexpr char kBackupMark[] = "BACKUP";
// Written when a caller knew of a later coordinator of the same run; says
// which.
inline constexpr char kSupersededMark[] = "SUPERSEDED";
inline constexpr char kSpoolDir[] = "spool";
inline constexpr char kImageDir[] = "images";
inline constexpr char kBlobDir[] = "blobs";

// FAILED_PRECONDITION, with what to do, when one of the marks stands there: the
// run must not go on in this directory.
absl::Status CheckMayGoOn(FileSystem* fs, const std::string& state_dir);

}  // namespace diloco

#endif  // COORDINATOR_STORE_STATE_DIR_H_

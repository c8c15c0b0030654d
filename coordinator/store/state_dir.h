// Names within a state directory; what stands in them: README.md.
#ifndef COORDINATOR_STORE_STATE_DIR_H_
#define COORDINATOR_STORE_STATE_DIR_H_

namespace diloco {

inline constexpr char kJournalName[] = "journal-000001.log";
inline constexpr char kLockName[] = "LOCK";
// Settings in words: those of the run's creation, and those of the run file at
// the last start.
inline constexpr char kSettingsFile[] = "settings.txt";
inline constexpr char kRunFileSettings[] = "run_file.txt";
// Only in backups: a coordinator refuses to start there.
inline constexpr char kBackupMark[] = "BACKUP";
inline constexpr char kSpoolDir[] = "spool";
inline constexpr char kImageDir[] = "images";
inline constexpr char kBlobDir[] = "blobs";

}  // namespace diloco

#endif  // COORDINATOR_STORE_STATE_DIR_H_

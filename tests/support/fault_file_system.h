// An in-memory FileSystem with planted faults, for tests of everything durable.
// It knows what a power cut leaves: bytes since the last Sync and directory
// entries since the last SyncDir are lost by Crash().
//
//   FaultFileSystem fs;
//   fs.set_space(1000);                  // ENOSPC once 1000 bytes are in use
//   fs.FailSync(2);                      // the second Sync from now fails
//   fs.FailWrite(3, /*keep_bytes=*/5);   // the third write is torn
//   fs.Crash();                          // open handles are dead afterwards
//   fs.FlipBit("state/x", 10, 3);
#ifndef TESTS_SUPPORT_FAULT_FILE_SYSTEM_H_
#define TESTS_SUPPORT_FAULT_FILE_SYSTEM_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/io/file_system.h"

namespace diloco {

// Thread-safe. Every path has its directories created first, as on a disk; ""
// and "." are the root. Mapped bytes stay valid while the file object lives
// and do not follow later writes.
class FaultFileSystem : public FileSystem {
 public:
  FaultFileSystem();
  ~FaultFileSystem() override;

  // Bytes that all files together may have; writes that would need more keep
  // what fits, as a short write does, and fail with RESOURCE_EXHAUSTED.
  void set_space(uint64_t bytes);
  // Files whose path contains `part` find no space to grow; "": all do.
  void set_full(std::string part);
  // The n-th (from 1) Sync or SyncDir from now fails with DATA_LOSS and what
  // it should have made durable is lost at the next Crash. Once.
  void FailSync(int n);
  // The n-th write from now keeps `keep_bytes` of its bytes and fails with
  // DATA_LOSS. Once.
  void FailWrite(int n, uint64_t keep_bytes = 0);
  // The n-th read or map from now fails with DATA_LOSS. Once.
  void FailRead(int n);
  // From the n-th write, sync, rename, removal, truncation or creation from
  // now on, everything that changes files fails with UNAVAILABLE, until
  // Crash: the process died there. 0: never. `stopped` is called then; it must
  // not call this.
  void StopAfter(int n, std::function<void()> stopped = nullptr);
  // Sync and SyncDir say OK and do nothing.
  void set_sync_lies(bool lies);

  // A power cut: unsynced bytes and directory changes are gone; files opened
  // before fail. Planted faults are cleared, the space limit stays.
  void Crash();
  // As Crash, but a prefix of `keep` of the unsynced bytes appended to each
  // file had reached the disk: torn tails.
  void CrashKeeping(uint64_t keep);
  // The process died, the machine did not: only handles and locks are gone.
  void KillProcess();

  void FlipBit(const std::string& path, uint64_t offset, int bit);

  uint64_t bytes_used() const;
  int syncs() const;      // Sync and SyncDir calls so far.
  int mutations() const;  // Calls that StopAfter counts, so far.

  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(
      const std::string& path) override;
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWrite(
      const std::string& path) override;
  bool Exists(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status CreateDirs(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) override;
  absl::Status SyncDir(const std::string& path) override;
  absl::StatusOr<uint64_t> FreeBytes(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(
      const std::string& path) override;

 private:
  class Readable;
  class Writable;
  class Held;
  // A file's content: what reads see, and what a power cut leaves.
  struct Inode {
    std::string content;
    std::string durable;
    uint64_t same = 0;  // The first bytes of both, known to be equal.
  };
  using Entries = std::map<std::string, std::shared_ptr<Inode>>;

  // One step towards StopAfter.
  absl::Status Mutate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // True when the counter reaches its last step now.
  static bool Fires(int* countdown);
  bool IsFull(const std::string& path) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t Used() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckParent(const std::string& path) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WriteLocked(Inode* inode, const std::string& path,
                           uint64_t offset, absl::string_view bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndProcess() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RenameDir(const std::string& from, const std::string& to)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  Entries live_ ABSL_GUARDED_BY(mu_);
  Entries durable_ ABSL_GUARDED_BY(mu_);
  // CreateDirs is durable by contract, so there is one set.
  std::set<std::string> dirs_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> locks_ ABSL_GUARDED_BY(mu_);
  uint64_t process_ ABSL_GUARDED_BY(mu_) = 0;  // Handles of older ones fail.
  uint64_t space_ ABSL_GUARDED_BY(mu_) = UINT64_MAX;
  std::string full_ ABSL_GUARDED_BY(mu_);
  int fail_sync_ ABSL_GUARDED_BY(mu_) = 0;
  int fail_write_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t fail_write_keep_ ABSL_GUARDED_BY(mu_) = 0;
  int fail_read_ ABSL_GUARDED_BY(mu_) = 0;
  int stop_after_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::function<void()> on_stop_ ABSL_GUARDED_BY(mu_);
  bool sync_lies_ ABSL_GUARDED_BY(mu_) = false;
  int syncs_ ABSL_GUARDED_BY(mu_) = 0;
  int mutations_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace diloco

#endif  // TESTS_SUPPORT_FAULT_FILE_SYSTEM_H_

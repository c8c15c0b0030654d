// The uploads under way: which spool a worker's chunks go to. Used by
// CoordinatorImpl from executor threads, and on the sequencer's thread when a
// round closes: nothing here holds `mu_` while it waits for a disk.
#ifndef COORDINATOR_RUNTIME_UPLOAD_TABLE_H_
#define COORDINATOR_RUNTIME_UPLOAD_TABLE_H_

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "common/base/mutex.h"
#include "coordinator/runtime/coordinator.h"
#include "coordinator/runtime/disk_alarm.h"
#include "coordinator/store/spool.h"

namespace diloco {

struct UploadKey {
  uint32_t fragment = 0;
  uint64_t round = 0;
  std::string worker;

  friend auto operator<=>(const UploadKey&, const UploadKey&) = default;
};

// One upload; thread-safe, calls on it take turns.
class ActiveUpload final : public Coordinator::Upload {
 public:
  ActiveUpload(UploadKey key, UpdateValue value,
               std::unique_ptr<UploadSpool> spool, Clock* clock,
               std::shared_ptr<DiskAlarm> alarm)
      : key_(std::move(key)),
        value_(value),
        clock_(clock),
        alarm_(std::move(alarm)),
        opened_at_(clock->Now()),
        last_write_ns_(absl::ToInt64Nanoseconds(opened_at_)),
        spool_(std::move(spool)) {}

  const UpdateValue& value() const { return value_; }

  uint64_t offset() const override;
  // CANCELLED after Cancel; UNAVAILABLE when the file failed: begin again.
  absl::Status Write(uint64_t offset, absl::string_view bytes) override;
  // As Write, and UploadSpool::Finish.
  absl::StatusOr<UploadSpool::Verified> Finish();
  // Later calls are CANCELLED. Does not wait for one that runs.
  void Cancel() { cancelled_ = true; }
  // Cancels, waits for the call that runs and closes the file, which stays.
  void Close();
  // The file failed; the next Begin removes it.
  bool broken() const { return broken_; }
  // As UploadSpool::sync_failed.
  bool sync_failed() const { return sync_failed_; }
  absl::Duration idle() const {
    return clock_->Now() - absl::Nanoseconds(last_write_ns_.load());
  }
  // Since it was opened in this process.
  absl::Duration age() const { return clock_->Now() - opened_at_; }

 private:
  absl::Status Check() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What the spool said, for operators and for the caller.
  absl::Status Judge(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const UploadKey key_;
  const UpdateValue value_;
  Clock* const clock_;
  const std::shared_ptr<DiskAlarm> alarm_;
  const Instant opened_at_;
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> broken_{false};
  std::atomic<bool> sync_failed_{false};
  std::atomic<int64_t> last_write_ns_;
  mutable Mutex mu_;
  std::unique_ptr<UploadSpool> spool_
      ABSL_GUARDED_BY(mu_);                      // Null once closed.
  uint64_t closed_at_ ABSL_GUARDED_BY(mu_) = 0;  // Offset then.
};

// Thread-safe.
class UploadTable {
 public:
  UploadTable(SpoolStore* spools, Clock* clock, int max_parallel)
      : spools_(spools), clock_(clock), max_parallel_(max_parallel) {}

  // The right to judge, open, finish and remove the upload of one key: what was
  // judged stays true until what follows from it is done.
  class Turn {
   public:
    // Only TryTurn makes one.
    Turn(UploadTable* table, UploadKey key)
        : table_(table), key_(std::move(key)) {}
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    const UploadKey& key() const { return key_; }

   private:
    UploadTable* const table_;
    const UploadKey key_;
  };
  // Null while another call has it: that one may take long (a spool is read
  // again, a large file is fsynced), and a thread must not wait for it.
  std::unique_ptr<Turn> TryTurn(const UploadKey& key);

  std::shared_ptr<ActiveUpload> Find(const UploadKey& key);
  // The upload under the key, opened if there is none, its value differs or its
  // file failed; null when too many others are active (ask again). CANCELLED:
  // the round has closed.
  absl::StatusOr<std::shared_ptr<ActiveUpload>> Open(const Turn& turn,
                                                     const UpdateValue& value,
                                                     PartScreen::Expect expect);
  void Remove(const Turn& turn);
  // Cancels and removes those of rounds up to and including `round`; none of
  // them is opened any more.
  void CancelRound(uint32_t fragment, uint64_t round);
  // Why updates cannot be written now; empty: they can.
  std::string trouble() const { return alarm_->trouble(); }

 private:
  bool IsClosed(const UploadKey& key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Uploads of other keys that make progress or are being opened.
  int CountOthers(const UploadKey& key) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::unique_ptr<UploadSpool>> OpenSpool(
      const UploadKey& key, const UpdateValue& value, PartScreen::Expect expect,
      std::shared_ptr<ActiveUpload> old);

  SpoolStore* const spools_;
  Clock* const clock_;
  const int max_parallel_;
  const std::shared_ptr<DiskAlarm> alarm_ = std::make_shared<DiskAlarm>();
  Mutex mu_;
  std::set<UploadKey> turns_ ABSL_GUARDED_BY(mu_);
  std::set<UploadKey> opening_ ABSL_GUARDED_BY(mu_);
  std::map<UploadKey, std::shared_ptr<ActiveUpload>> uploads_
      ABSL_GUARDED_BY(mu_);
  // By fragment: the newest round that closed.
  std::map<uint32_t, uint64_t> closed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace diloco

#endif  // COORDINATOR_RUNTIME_UPLOAD_TABLE_H_

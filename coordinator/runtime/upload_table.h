// The uploads under way: which spool a worker's chunks go to. Used by
// CoordinatorImpl from executor threads.
#ifndef COORDINATOR_RUNTIME_UPLOAD_TABLE_H_
#define COORDINATOR_RUNTIME_UPLOAD_TABLE_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

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
        spool_(std::move(spool)),
        last_write_(opened_at_) {}

  const UploadKey& key() const { return key_; }
  const UpdateValue& value() const { return value_; }

  uint64_t offset() const override;
  absl::Status Write(uint64_t offset, absl::string_view bytes) override;
  absl::StatusOr<UploadSpool::Verified> Finish();
  // Later writes are CANCELLED; the files stay.
  void Cancel() { cancelled_ = true; }
  // INVALID_ARGUMENT once the content proved unusable for good.
  absl::Status verdict() const;
  absl::Duration idle() const;
  // Since it was opened in this process.
  absl::Duration age() const { return clock_->Now() - opened_at_; }

 private:
  const UploadKey key_;
  const UpdateValue value_;
  Clock* const clock_;
  const std::shared_ptr<DiskAlarm> alarm_;
  const Instant opened_at_;
  std::atomic<bool> cancelled_{false};
  mutable Mutex mu_;
  std::unique_ptr<UploadSpool> spool_ ABSL_GUARDED_BY(mu_);
  absl::Status verdict_ ABSL_GUARDED_BY(mu_);
  Instant last_write_ ABSL_GUARDED_BY(mu_);
};

// Thread-safe.
class UploadTable {
 public:
  UploadTable(SpoolStore* spools, Clock* clock, int max_parallel)
      : spools_(spools), clock_(clock), max_parallel_(max_parallel) {}

  std::shared_ptr<ActiveUpload> Find(const UploadKey& key);
  // The upload under the key, opened if there is none or its value differs;
  // null when too many others are active (ask again).
  absl::StatusOr<std::shared_ptr<ActiveUpload>> Open(const UploadKey& key,
                                                     const UpdateValue& value,
                                                     PartScreen::Expect expect);
  void Remove(const UploadKey& key);
  // Cancels and removes those of rounds up to and including `round`.
  void CancelRound(uint32_t fragment, uint64_t round);
  // Why updates cannot be written now; empty: they can.
  std::string trouble() const { return alarm_->trouble(); }

 private:
  SpoolStore* const spools_;
  Clock* const clock_;
  const int max_parallel_;
  const std::shared_ptr<DiskAlarm> alarm_ = std::make_shared<DiskAlarm>();
  // Held while a spool is opened or re-read, so that two calls for one key
  // never open the same file; guards nothing but the order.
  Mutex open_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  Mutex mu_;
  std::map<UploadKey, std::shared_ptr<ActiveUpload>> uploads_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace diloco

#endif  // COORDINATOR_RUNTIME_UPLOAD_TABLE_H_

// Tells operators that updates cannot be written, for want of space or because
// their directory cannot be used: once when it begins, in /readyz while it
// lasts, and when it is over. Used by the uploads; thread-safe.
#ifndef COORDINATOR_RUNTIME_DISK_ALARM_H_
#define COORDINATOR_RUNTIME_DISK_ALARM_H_

#include <string>

#include "absl/status/status.h"
#include "common/base/logging.h"
#include "common/base/mutex.h"

namespace diloco {

class DiskAlarm {
 public:
  // Why a spool cannot be begun or written.
  void Raise(const absl::Status& status) {
    MutexLock lock(&mu_);
    if (trouble_.empty()) {
      DILOCO_LOG(ERROR) << "updates cannot be written; workers try again until "
                           "they can error=\""
                        << status.message() << "\"";
    }
    trouble_ = std::string(status.message());
  }

  // A whole update was written: only that ends the alarm, so that a disk that
  // is nearly full does not report in turns.
  void Clear() {
    MutexLock lock(&mu_);
    if (trouble_.empty()) return;
    trouble_.clear();
    DILOCO_LOG(INFO) << "updates are written again";
  }

  // Empty: none.
  std::string trouble() const {
    MutexLock lock(&mu_);
    return trouble_;
  }

 private:
  mutable Mutex mu_;
  std::string trouble_ ABSL_GUARDED_BY(mu_);
};

}  // namespace diloco

#endif  // COORDINATOR_RUNTIME_DISK_ALARM_H_

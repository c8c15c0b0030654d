// The calls that a server is answering right now, so that a stop can end those
// that wait (long polls, streams) with a retryable status instead of sitting
// out the grace; and their count by method and code.
#ifndef COMMON_RPC_CALL_TRACKER_H_
#define COMMON_RPC_CALL_TRACKER_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/metrics/metrics.h"

namespace diloco {

// A call that can be ended from outside.
class StoppableCall {
 public:
  virtual ~StoppableCall() = default;
  // Finishes with `status` as soon as the call's state allows. Idempotent.
  virtual void Stop(const absl::Status& status) = 0;
};

// Thread-safe.
class CallTracker {
 public:
  // `prefix` names the counter, e.g. "diloco_coordinator".
  CallTracker(std::string prefix, MetricsRegistry* metrics);

  // After StopAll the call is stopped at once.
  void Add(const std::shared_ptr<StoppableCall>& call);
  // `method` is a constant text; ends the tracking of `call`.
  void Done(const StoppableCall* call, const char* method,
            absl::StatusCode code);
  void StopAll(const absl::Status& status);
  // Returns when no call is left, or after `limit`.
  void WaitUntilIdle(absl::Duration limit);

 private:
  const std::string prefix_;
  MetricsRegistry* const metrics_;
  Mutex mu_;
  CondVar ended_;
  std::map<const StoppableCall*, std::weak_ptr<StoppableCall>> calls_
      ABSL_GUARDED_BY(mu_);
  std::map<std::pair<std::string, absl::StatusCode>, Counter*> handled_
      ABSL_GUARDED_BY(mu_);
  absl::Status stopped_ ABSL_GUARDED_BY(mu_);
};

}  // namespace diloco

#endif  // COMMON_RPC_CALL_TRACKER_H_

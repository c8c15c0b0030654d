#include "common/rpc/call_tracker.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"

namespace diloco {

CallTracker::CallTracker(std::string prefix, MetricsRegistry* metrics)
    : prefix_(std::move(prefix)), metrics_(metrics) {}

void CallTracker::Add(const std::shared_ptr<StoppableCall>& call) {
  absl::Status stopped;
  {
    MutexLock lock(&mu_);
    calls_[call.get()] = call;
    stopped = stopped_;
  }
  if (!stopped.ok()) call->Stop(stopped);
}

void CallTracker::Done(const StoppableCall* call, const char* method,
                       absl::StatusCode code) {
  MutexLock lock(&mu_);
  calls_.erase(call);
  if (calls_.empty()) ended_.SignalAll();
  Counter*& counter = handled_[{method, code}];
  if (counter == nullptr) {
    counter = metrics_->AddCounter(
        absl::StrCat(prefix_, "_grpc_handled_total"),
        "Calls answered, by method and status code.",
        {{"method", method}, {"code", absl::StatusCodeToString(code)}});
  }
  counter->Increment();
}

void CallTracker::StopAll(const absl::Status& status) {
  std::vector<std::shared_ptr<StoppableCall>> calls;
  {
    MutexLock lock(&mu_);
    stopped_ = status;
    for (const auto& [address, weak] : calls_) {
      if (auto call = weak.lock()) calls.push_back(std::move(call));
    }
  }
  for (const auto& call : calls) call->Stop(status);
}

void CallTracker::WaitUntilIdle(absl::Duration limit) {
  const Instant end = Clock::Real()->Now() + limit;
  MutexLock lock(&mu_);
  while (!calls_.empty()) {
    const absl::Duration left = end - Clock::Real()->Now();
    if (left <= absl::ZeroDuration()) return;
    ended_.WaitFor(&mu_, left);
  }
}

}  // namespace diloco

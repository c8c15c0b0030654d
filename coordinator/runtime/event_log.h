// The newest facts, kept in memory for dilococtl watch. Lives on the
// sequencer's thread.
#ifndef COORDINATOR_RUNTIME_EVENT_LOG_H_
#define COORDINATOR_RUNTIME_EVENT_LOG_H_

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "coordinator/runtime/coordinator.h"

namespace diloco {

class EventLog {
 public:
  void Add(EventReport event) {
    events_.push_back(std::move(event));
    if (events_.size() > kKept) events_.pop_front();
  }
  uint64_t oldest() const {
    return events_.empty() ? 0 : events_.front().sequence;
  }
  uint64_t newest() const {
    return events_.empty() ? 0 : events_.back().sequence;
  }
  // At most `kPage` events after `sequence`.
  std::vector<EventReport> After(uint64_t sequence) const {
    std::vector<EventReport> out;
    for (const EventReport& event : events_) {
      if (event.sequence > sequence && out.size() < kPage) out.push_back(event);
    }
    return out;
  }

 private:
  static constexpr size_t kKept = 2000;
  static constexpr size_t kPage = 100;
  std::deque<EventReport> events_;
};

}  // namespace diloco

#endif  // COORDINATOR_RUNTIME_EVENT_LOG_H_

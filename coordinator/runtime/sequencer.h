// The one writer of the coordinator's state: a thread that takes events in
// order, lets the pure core decide, journals the facts (one fsync per batch),
// evolves the state, and only then answers. Used by CoordinatorImpl.
#ifndef COORDINATOR_RUNTIME_SEQUENCER_H_
#define COORDINATOR_RUNTIME_SEQUENCER_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/threads.h"
#include "coordinator/core/machine.h"
#include "coordinator/store/journal.h"

namespace diloco {

struct AppliedFact {
  uint64_t sequence = 0;
  Fact fact;
};

// Thread-safe, except for what is marked "on the thread".
class Sequencer {
 public:
  struct Options {
    Policy policy;
    // On the thread, when the settings in force have changed.
    std::function<Policy(const State&)> policy_of;
    Clock* clock = nullptr;
    Threads* threads = Threads::Real();
    State state;
    Soft soft;
    std::unique_ptr<Journal> journal;
    // On the thread, after the facts of a batch are durable and before any
    // reply; and after every batch.
    std::function<void(const std::vector<AppliedFact>&)> on_durable;
    std::function<void()> after_batch;
    // Why the disk has no room for another round; empty: it has.
    std::function<std::string()> no_room = [] { return std::string(); };
    // On the thread, while the journal waits for space.
    std::function<void()> on_full = [] {};
    // The journal failed for good: the process cannot go on.
    std::function<void(absl::Status)> on_fatal;
  };
  // What came of an event: its status and the last sequence number it wrote.
  using Reply = std::function<void(absl::Status, uint64_t sequence)>;

  explicit Sequencer(Options options);
  ~Sequencer();

  void Start();
  // Ends the thread; events and closures still queued are answered UNAVAILABLE
  // or dropped.
  void Stop();

  void Submit(Event event, Reply reply);
  // Runs `closure` on the thread before the events that are queued: it sees
  // durable state only. It gets true, or false when the sequencer has stopped.
  void Post(std::function<void(bool alive)> closure);

  // On the thread (or before Start).
  const State& state() const { return options_.state; }
  Soft& soft() { return options_.soft; }
  const Policy& policy() const { return options_.policy; }
  Instant Now() const { return options_.clock->Now(); }
  uint64_t last_sequence() const { return options_.journal->last_sequence(); }

  // Not empty while the journal cannot be written: then nothing queued is
  // answered.
  std::string trouble() const;
  // UNAVAILABLE, with that, once it has lasted longer than a caller waits.
  absl::Status Stalled() const;

 private:
  struct Item {
    std::optional<Event> event;
    Reply reply;
    std::function<void(bool)> closure;
  };

  void Loop();
  // Decides one event and applies its facts; the status for the caller.
  absl::Status Apply(const Event& event, std::vector<AppliedFact>& applied);
  // Until it succeeds, the failure is final (false) or Stop was called (false).
  // Whoever waits for this process has not been silent for that time, and no
  // deadline ran: soft instants move along.
  bool CommitOrWait();

  Options options_;
  std::unique_ptr<Threads::Thread> thread_;
  mutable Mutex mu_;
  WaitPoint wake_{options_.threads};
  std::deque<Item> queue_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::string trouble_ ABSL_GUARDED_BY(mu_);
  std::optional<Instant> commit_began_ ABSL_GUARDED_BY(mu_);
};

}  // namespace diloco

#endif  // COORDINATOR_RUNTIME_SEQUENCER_H_

// Workers of unequal speed and workers that come in mid-round, whole runs.

#include <future>

#include "tests/component/agent/agent_run.h"

namespace diloco {
namespace {

// Facts of the run so far.
template <typename F>
std::vector<F> FactsOf(Fixture& fixture) {
  std::atomic<bool> ready{false};
  std::vector<F> found;
  fixture.slot.Get()->GetEvents(
      0, absl::ZeroDuration(), [&](absl::StatusOr<EventsOutcome> events) {
        if (events.ok()) {
          for (const EventReport& event : events->events) {
            const F* fact = std::get_if<F>(&event.fact);
            if (fact != nullptr) found.push_back(*fact);
          }
        }
        ready = true;
      });
  while (!ready) std::this_thread::yield();
  return found;
}

const RoundMember* MemberOf(const RoundClosed& closed,
                            const std::string& worker) {
  for (const RoundMember& member : closed.members) {
    if (member.worker == worker) return &member;
  }
  return nullptr;
}

TEST_CASE("C6.3 one slow worker among four holds nobody and is not lost") {
  Fixture fixture(4);
  fixture.policy.deadline = absl::Milliseconds(1500);
  fixture.policy.train_tokens = fixture.settings.train.tokens = 100'000;
  fixture.StartCoordinator();
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < 4; ++i) {
    workers.push_back(std::make_unique<Worker>(fixture, i));
    const int milliseconds = i == 3 ? 600 : 20;
    workers.back()->prepare = [milliseconds](FakeTrainer& trainer) {
      trainer.SpendBeforeStep([milliseconds] {
        std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      });
    };
    workers.back()->Start();
  }
  // Its window takes 3 s, twice the deadline: rounds close without it until it
  // is full, and then all of it is folded.
  uint64_t skipped_in = 0;  // Events of long ago are not kept.
  const auto folded_after_a_skip = [&] {
    for (const RoundOpened& opened : FactsOf<RoundOpened>(fixture)) {
      if (!opened.skipped.empty()) skipped_in = opened.round;
      if (skipped_in != 0) break;
    }
    for (const RoundClosed& closed : FactsOf<RoundClosed>(fixture)) {
      const RoundMember* slow = MemberOf(closed, "worker-3");
      if (skipped_in != 0 && closed.round > skipped_in && slow != nullptr) {
        return slow->tokens >= 5 * 8;
      }
    }
    return false;
  };
  fixture.Await(folded_after_a_skip);
  int without = 0;
  for (const RoundClosed& closed : FactsOf<RoundClosed>(fixture)) {
    if (MemberOf(closed, "worker-3") != nullptr) continue;
    ++without;
    if (closed.missing.empty()) REQUIRE(closed.members.size() == 3);
  }
  REQUIRE(without > 2);
  bool told = false;
  for (const RoundOpened& opened : FactsOf<RoundOpened>(fixture)) {
    for (const RoundOpened::Skipped& skipped : opened.skipped) {
      told |= skipped.worker == "worker-3" &&
              skipped.reason.find("after the deadline of 1.5 s") !=
                  std::string::npos;
    }
  }
  REQUIRE(told);
  REQUIRE_FALSE(FactsOf<LeaseAdded>(fixture).empty());
}

}  // namespace
}  // namespace diloco

// Workers of unequal speed and workers that come in mid-round, whole runs.

#include <future>
#include <set>
#include <string>
#include <utility>

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
  std::vector<uint32_t> takes;  // Of the slow one: steps away from its anchor.
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < 4; ++i) {
    workers.push_back(std::make_unique<Worker>(fixture, i));
    const int milliseconds = i == 3 ? 600 : 20;
    workers.back()->prepare = [milliseconds, i, &takes](FakeTrainer& trainer) {
      if (i == 3) trainer.LogTakes(&takes);
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

  // Whatever it applied in the midst of its windows, their steps are in what
  // it offers.
  workers[3]->stop = true;
  workers[3]->Join();
  std::vector<uint32_t> offered;
  // One that was late is taken again on the next base; its bytes may be equal.
  std::set<std::pair<uint64_t, std::string>> seen;
  for (const UpdateOffer& offer : workers[3]->port.offers()) {
    if (seen.insert({offer.round, offer.digest.ToHex()}).second) {
      offered.push_back(offer.steps);
    }
  }
  REQUIRE(offered == takes);
}

// Two workers whose rounds take more than a second, and evaluations of every
// version.
struct SlowPair {
  SlowPair() : fixture(2) {
    fixture.MakeLong();
    fixture.settings.join_probe = true;
    fixture.EvaluateEveryVersion(4);
    fixture.StartCoordinator();
    for (int i = 0; i < 2; ++i) {
      workers.push_back(std::make_unique<Worker>(fixture, i));
      workers.back()->prepare = [](FakeTrainer& trainer) {
        trainer.SpendBeforeStep([] {
          std::this_thread::sleep_for(std::chrono::milliseconds(250));
        });
      };
      workers.back()->Start();
    }
  }
  // The next round that begins has its version evaluated.
  void AwaitEvaluation() {
    const uint64_t version = fixture.Status().fragments[0].version + 1;
    fixture.Await([&] {
      const StatusReport status = fixture.Status();
      return status.eval.has_value() && status.eval->version >= version &&
             status.eval->version == status.fragments[0].version;
    });
  }

  Fixture fixture;
  std::vector<std::unique_ptr<Worker>> workers;
};

TEST_CASE("a joiner in mid-round is folded with the steps that fit") {
  SlowPair pair;
  Fixture& fixture = pair.fixture;
  pair.AwaitEvaluation();
  Worker joiner(fixture, 2);
  joiner.prepare = [](FakeTrainer& trainer) {
    trainer.SpendBeforeStep(
        [] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); });
  };
  joiner.Start();
  fixture.Await([&] {
    for (const RoundClosed& closed : FactsOf<RoundClosed>(fixture)) {
      if (MemberOf(closed, "worker-2") != nullptr) return true;
    }
    return false;
  });
  const std::vector<LeaseAdded> late = FactsOf<LeaseAdded>(fixture);
  REQUIRE_FALSE(late.empty());
  REQUIRE(late[0].lease.worker == "worker-2");
  REQUIRE(late[0].lease.steps <= 5);
  // Its weight is what it has done.
  for (const RoundClosed& closed : FactsOf<RoundClosed>(fixture)) {
    const RoundMember* member = MemberOf(closed, "worker-2");
    if (member == nullptr || closed.round != late[0].round) continue;
    REQUIRE(member->weight == late[0].lease.tokens);
  }
  REQUIRE(fixture.metrics.Text().find(
              "diloco_coordinator_probes_total{result=\"agrees\"} 1\n") !=
          std::string::npos);
}

TEST_CASE("a joiner that computes another model is refused with both losses") {
  SlowPair pair;
  Fixture& fixture = pair.fixture;
  pair.AwaitEvaluation();
  std::atomic<uint64_t> steps{0};
  Worker joiner(fixture, 2);
  joiner.prepare = [&steps](FakeTrainer& trainer) {
    trainer.DisturbEvaluations(1.05);
    trainer.CountSteps(&steps);
  };
  joiner.Start();
  joiner.Join();
  INFO(joiner.status.ToString());
  REQUIRE(joiner.status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(joiner.status.message().find("more than 1 % apart") !=
          std::string::npos);
  REQUIRE(steps == 3);  // The timed ones.
  const StatusReport status = fixture.Status();
  REQUIRE(status.workers.size() == 3);
  REQUIRE(status.workers[2].membership == "refused");
  REQUIRE(status.workers[2].refusal == joiner.status.message());
  REQUIRE(fixture.metrics.Text().find(
              "diloco_coordinator_probes_total{result=\"refused\"} 1\n") !=
          std::string::npos);
  // Another start is as cold as this one was.
  CheckpointStore checkpoints(FileSystem::Posix(), joiner.options.scratch);
  REQUIRE_FALSE(checkpoints.LoadNewest()->has_value());
}

TEST_CASE("the probe leaves no trace in what is trained") {
  Fixture calm(2);
  const Digest expected = RunToEnd(calm, 2);
  Fixture fixture(2);
  fixture.settings.join_probe = true;
  REQUIRE(RunToEnd(fixture, 2) == expected);
}

}  // namespace
}  // namespace diloco

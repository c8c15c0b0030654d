// Workers of unequal speed and workers that come in mid-round, whole runs.

#include <set>
#include <string>
#include <utility>

#include "tests/component/agent/virtual_run.h"

namespace diloco {
namespace {

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
  std::vector<uint32_t> takes;  // Of the slow one: steps away from its anchor.
  VirtualRun run(fixture);
  for (int i = 0; i < 3; ++i) run.AddWorker(i, absl::Milliseconds(20));
  VirtualWorker& slow =
      run.AddWorker(3, absl::Milliseconds(600),
                    [&](FakeTrainer& trainer) { trainer.LogTakes(&takes); });
  // Its window takes 3 s, twice the deadline: rounds close without it until it
  // is full, and then all of it is folded.
  uint64_t skipped_in = 0;
  const auto folded_after_a_skip = [&] {
    for (const RoundOpened& opened : run.FactsOf<RoundOpened>()) {
      if (!opened.skipped.empty()) skipped_in = opened.round;
      if (skipped_in != 0) break;
    }
    for (const RoundClosed& closed : run.FactsOf<RoundClosed>()) {
      const RoundMember* member = MemberOf(closed, "worker-3");
      if (skipped_in != 0 && closed.round > skipped_in && member != nullptr) {
        return member->tokens >= 5 * 8;
      }
    }
    return false;
  };
  run.Until(folded_after_a_skip);
  int without = 0;
  for (const RoundClosed& closed : run.FactsOf<RoundClosed>()) {
    if (MemberOf(closed, "worker-3") != nullptr) continue;
    ++without;
    if (closed.missing.empty()) REQUIRE(closed.members.size() == 3);
  }
  REQUIRE(without > 2);
  bool told = false;
  for (const RoundOpened& opened : run.FactsOf<RoundOpened>()) {
    for (const RoundOpened::Skipped& skipped : opened.skipped) {
      told |= skipped.worker == "worker-3" &&
              skipped.reason.find("after the deadline of 1.5 s") !=
                  std::string::npos;
    }
  }
  REQUIRE(told);
  REQUIRE_FALSE(run.FactsOf<LeaseAdded>().empty());

  // Whatever it applied in the midst of its windows, their steps are in what
  // it offers.
  slow.base.stop = true;
  run.Until([&] { return slow.base.ended.load(); });
  std::vector<uint32_t> offered;
  // One that was late is taken again on the next base; its bytes may be equal.
  std::set<std::pair<uint64_t, std::string>> seen;
  for (const UpdateOffer& offer : slow.offers) {
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
    run.emplace(fixture);
    for (int i = 0; i < 2; ++i) run->AddWorker(i, absl::Milliseconds(250));
    // A round has begun, and its version is evaluated.
    run->Until([&] {
      const StatusReport status = run->Status();
      return status.eval.has_value() && status.eval->version >= 1 &&
             status.eval->version == status.fragments[0].version;
    });
  }

  Fixture fixture;
  std::optional<VirtualRun> run;
};

TEST_CASE("a joiner in mid-round is folded with the steps that fit") {
  SlowPair pair;
  VirtualRun& run = *pair.run;
  run.AddWorker(2, absl::Milliseconds(10));
  run.Until([&] {
    for (const RoundClosed& closed : run.FactsOf<RoundClosed>()) {
      if (MemberOf(closed, "worker-2") != nullptr) return true;
    }
    return false;
  });
  const std::vector<LeaseAdded> late = run.FactsOf<LeaseAdded>();
  REQUIRE_FALSE(late.empty());
  REQUIRE(late[0].lease.worker == "worker-2");
  REQUIRE(late[0].lease.steps <= 5);
  // Its weight is what it has done.
  for (const RoundClosed& closed : run.FactsOf<RoundClosed>()) {
    const RoundMember* member = MemberOf(closed, "worker-2");
    if (member == nullptr || closed.round != late[0].round) continue;
    REQUIRE(member->weight == late[0].lease.tokens);
  }
  REQUIRE(pair.fixture.metrics.Text().find(
              "diloco_coordinator_probes_total{result=\"agrees\"} 1\n") !=
          std::string::npos);
}

TEST_CASE("a joiner that computes another model is refused with both losses") {
  std::atomic<uint64_t> steps{0};
  SlowPair pair;
  const Worker& joiner = pair.run
                             ->AddWorker(2, absl::Milliseconds(10),
                                         [&](FakeTrainer& trainer) {
                                           trainer.DisturbEvaluations(1.05);
                                           trainer.CountSteps(&steps);
                                         })
                             .base;
  pair.run->Until([&] { return joiner.ended.load(); });
  INFO(joiner.status.ToString());
  REQUIRE(joiner.status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(joiner.status.message().find("more than 1 % apart") !=
          std::string::npos);
  REQUIRE(steps == 3);  // The timed ones.
  const StatusReport status = pair.run->Status();
  REQUIRE(status.workers.size() == 3);
  REQUIRE(status.workers[2].membership == "refused");
  REQUIRE(status.workers[2].refusal == joiner.status.message());
  REQUIRE(pair.fixture.metrics.Text().find(
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

// Rounds that do not wait for everybody, and steps that follow speed.
#include <vector>

#include "absl/strings/match.h"
#include "coordinator/core/eligibility.h"
#include "tests/support/catch.h"
#include "tests/unit/core/core_run.h"

namespace diloco {
namespace {

const Names kFour = {"a", "b", "c", "d"};

struct QuorumRun : CoreRun {
  QuorumRun() {
    policy.wait_for = 4;
    policy.deadline = absl::Minutes(10);
    for (const std::string& name : kFour) REQUIRE(Join(name).status.ok());
    REQUIRE(open());
  }
};

TEST_CASE("a round closes with its quorum, once the grace is over") {
  QuorumRun run;
  run.policy.quorum = 2;
  run.policy.grace = absl::Seconds(3);
  run.Deliver("b");
  run.Pass(absl::Seconds(4), kFour);
  CHECK(run.open());
  run.Deliver("a");
  run.Pass(absl::Seconds(2), kFour);
  CHECK(run.open());
  run.Pass(absl::Seconds(1), kFour);
  REQUIRE(run.folding());
  CHECK(MemberNames(run.closed()) == Names{"a", "b"});
  CHECK(run.closed().missing == Names{"c", "d"});
  CHECK(absl::StrContains(run.closed().reason, "quorum and grace, 2 of 4"));
  run.Fold();
  // What the others have done goes with them.
  CHECK(run.open_round().leases.at("c").carried_tokens == 1000);
  CHECK(run.open_round().leases.at("a").carried_tokens == 0);
}

TEST_CASE("within the grace others still come in") {
  QuorumRun run;
  run.policy.quorum_share = 0.5;
  run.policy.grace_share = 0.5;
  run.Pass(absl::Seconds(4), kFour);
  run.Deliver("a");
  run.Deliver("b");
  // Half of the 4 s that the quorum took.
  run.Pass(absl::Seconds(1), kFour);
  run.Deliver("d");
  CHECK(run.open());
  run.Pass(absl::Seconds(1), kFour);
  CHECK(MemberNames(run.closed()) == Names{"a", "b", "d"});
}

TEST_CASE("everybody there: no grace; a quorum below min_updates: those") {
  QuorumRun run;
  run.policy.quorum = 1;
  run.policy.grace = absl::Hours(1);
  for (const std::string& name : kFour) run.Deliver(name);
  CHECK(run.folding());

  QuorumRun more;
  more.policy.quorum = 1;
  more.policy.min_updates = 3;
  more.Deliver("a");
  more.Pass(absl::Seconds(1), kFour);
  more.Deliver("b");
  more.Pass(absl::Seconds(1), kFour);
  CHECK(more.open());
  more.Deliver("c");
  CHECK(more.folding());
}

TEST_CASE("the last round waits for everybody") {
  QuorumRun run;
  run.policy.quorum = 1;
  run.policy.train_tokens = 4000;
  run.Deliver("a");
  for (int i = 0; i < 10; ++i) run.Pass(absl::Seconds(10), kFour);
  REQUIRE(run.open());
  for (const char* name : {"b", "c", "d"}) run.Deliver(name);
  CHECK(run.folding());
}

TEST_CASE("after a restart the grace begins anew") {
  QuorumRun run;
  run.policy.quorum = 1;
  run.policy.grace = absl::Seconds(3);
  run.Deliver("a");
  run.now += absl::Seconds(2);
  run.soft = StartSoft(run.state, run.now);
  for (const std::string& name : kFour) run.Do(BeatEvent{name});
  run.Pass(absl::Seconds(2), kFour);
  CHECK(run.open());
  run.Pass(absl::Seconds(1), kFour);
  CHECK(MemberNames(run.closed()) == Names{"a"});
}

TEST_CASE("steps by speed: all finish together, and the run ends in time") {
  CoreRun run;
  run.policy.steps_by_speed = true;
  run.policy.interval = 12;
  run.policy.wait_for = 3;
  run.policy.train_tokens = 100 * 2 * 21;
  run.Join("a");
  run.Join("b");
  run.soft.workers["a"].step_seconds = 1;
  run.soft.workers["b"].step_seconds = 2;
  run.soft.workers["c"].step_seconds = 4;
  run.Join("c");
  REQUIRE(run.open());
  const auto& leases = run.open_round().leases;
  CHECK(leases.at("a").steps == 12);
  CHECK(leases.at("b").steps == 6);
  CHECK(leases.at("c").steps == 3);
  CHECK(leases.at("c").tokens == 300);
  // Each crosses the same stretch of the schedule: half of the run.
  for (const auto& [name, lease] : leases) {
    CHECK(lease.steps * lease.progress_step == Approx(0.5));
  }
  for (const char* name : {"a", "b", "c"}) run.Deliver(name);
  CHECK(run.closed().members[2].weight == 300);
  run.Fold();
  REQUIRE(run.open());
  CHECK(run.open_round().leases.at("a").steps == 12);
  for (const char* name : {"a", "b", "c"}) run.Deliver(name);
  run.Fold();
  CHECK(run.state.finished);
}

TEST_CASE("steps by speed: the upload counts, the unmeasured make all") {
  CoreRun run;
  run.policy.steps_by_speed = true;
  run.policy.interval = 20;
  run.policy.wait_for = 3;
  run.soft.workers["a"].step_seconds = 1;
  run.soft.workers["b"].step_seconds = 1;
  run.soft.workers["b"].upload_seconds = 5;
  for (const char* name : {"a", "b", "c"}) run.Join(name);
  const auto& leases = run.open_round().leases;
  CHECK(leases.at("a").steps == 20);
  CHECK(leases.at("b").steps == 15);
  CHECK(leases.at("c").steps == 20);
}

}  // namespace
}  // namespace diloco

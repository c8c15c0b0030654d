#include "absl/strings/str_cat.h"
#include "coordinator/core/soft.h"
#include "tests/support/catch.h"
#include "tests/unit/core/core_run.h"

namespace diloco {
namespace {

using Code = absl::StatusCode;

bool Contains(const absl::Status& status, const std::string& text) {
  INFO(status.ToString());
  return std::string(status.message()).find(text) != std::string::npos;
}

TEST_CASE("a repeated Join call gets the session it got before") {
  CoreRun run;
  JoinEvent event;
  event.worker = "a";
  event.attempt = "attempt";
  event.new_session = "one";
  REQUIRE(Has<WorkerJoined>(run.Do(event)));
  event.new_session = "two";
  const Decision repeat = run.Do(event);
  REQUIRE(repeat.status.ok());
  REQUIRE(repeat.facts.empty());
  REQUIRE(run.SessionOf("a") == "one");
}

TEST_CASE("a Join call that comes once more after the worker left is void") {
  CoreRun run;
  JoinEvent event;
  event.worker = "a";
  event.attempt = "attempt";
  event.new_session = "first";
  REQUIRE(run.Do(event).status.ok());
  run.Do(LeaveEvent{"a", "drained"});
  event.new_session = "nobody gets this";
  const Decision late = run.Do(event);
  REQUIRE(late.status.code() == Code::kFailedPrecondition);
  REQUIRE(Contains(late.status, "has left since"));
  REQUIRE(run.state.workers.at("a").membership == Membership::kLeft);
  // The worker's own directory stays the newest.
  REQUIRE(run.Join("a", "first").status.ok());
}

TEST_CASE("a late copy of a worker's first Join does not take its name") {
  CoreRun run;
  run.policy.wait_for = 1;
  JoinEvent first;
  first.worker = "a";
  first.attempt = "first";
  first.new_session = "one";
  REQUIRE(run.Do(first).status.ok());
  REQUIRE(run.Join("a", "one").status.ok());
  const std::string newest = run.SessionOf("a");
  SECTION("it left") { run.Do(LeaveEvent{"a", "drained"}); }
  SECTION("it is lost") {
    run.Pass(run.policy.lease);
    REQUIRE(run.state.workers.at("a").membership == Membership::kLost);
  }
  first.new_session = "nobody gets this";
  const Decision late = run.Do(first);
  CHECK(late.status.code() == Code::kFailedPrecondition);
  CHECK(Contains(late.status, "join again"));
  CHECK(late.facts.empty());
  // The worker's own directory is still the newest.
  CHECK(run.Join("a", newest).status.ok());
}

TEST_CASE("C6.2 a restart with the newest token takes over at once") {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  const std::string first = run.SessionOf("a");
  REQUIRE(run.Join("a", first).status.ok());
  REQUIRE(run.SessionOf("a") != first);
  REQUIRE(run.open_round().leases.count("a") == 1);
  REQUIRE(*WorkerOfSession(run.state, run.SessionOf("a")) == "a");
  const absl::Status old = WorkerOfSession(run.state, first).status();
  REQUIRE(old.code() == Code::kPermissionDenied);
  REQUIRE(Contains(old, "newer process"));
}

TEST_CASE("C6.2 a copied scratch directory with an older token is refused") {
  CoreRun run;
  run.Join("a");
  const std::string copied = run.SessionOf("a");
  run.Join("a", copied);
  run.Do(BeatEvent{"a"});
  const Decision copy = run.Join("a", copied);
  REQUIRE(copy.status.code() == Code::kPermissionDenied);
  REQUIRE(Contains(copy.status, "worker a is a copy"));
  REQUIRE(Contains(copy.status, "10.0.0.2"));
  REQUIRE(run.Join("a", copied, /*take_over=*/true).status.code() ==
          Code::kPermissionDenied);
}

TEST_CASE("C6.2 a copied scratch directory under another name is refused") {
  CoreRun run;
  run.Join("a");
  const Decision copy = run.Join("b", run.SessionOf("a"));
  REQUIRE(copy.status.code() == Code::kPermissionDenied);
  REQUIRE(Contains(copy.status, "belongs to worker a"));
}

TEST_CASE("C6.2 one step back is allowed while the reply may have been lost") {
  CoreRun run;
  run.Join("a");
  const std::string stored = run.SessionOf("a");
  // Replies lost, twice: the worker still has the token before.
  REQUIRE(run.Join("a", stored).status.ok());
  REQUIRE(run.Join("a", stored).status.ok());
  REQUIRE(run.Join("a", run.SessionOf("a")).status.ok());
  REQUIRE(run.Join("a", "never given out").status.code() ==
          Code::kPermissionDenied);
}

TEST_CASE("C6.2 a fresh start under a held name waits for the lease") {
  CoreRun run;
  run.Join("a");
  run.now += absl::Seconds(12);
  const Decision held = run.Join("a");
  REQUIRE(held.status.code() == Code::kAlreadyExists);
  REQUIRE(Contains(held.status, "held by ipv4:10.0.0.1; free in 18 s"));
  REQUIRE(Contains(held.status, "--take-over"));
  run.now += absl::Seconds(18);
  REQUIRE(run.Join("a").status.ok());
}

TEST_CASE("C6.2 take-over ends the other process") {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  const std::string ended = run.SessionOf("a");
  REQUIRE(run.Join("a", "", /*take_over=*/true).status.ok());
  REQUIRE(WorkerOfSession(run.state, ended).status().code() ==
          Code::kPermissionDenied);
  // Its scratch is the older one now.
  REQUIRE(run.Join("a", ended).status.code() == Code::kPermissionDenied);
  // One key, one update: never both in a fold.
  run.Deliver("a");
  UpdateValue other = run.Value("a");
  other.digest = Sha256("the other process");
  REQUIRE(run.Do(run.Verified("a", other)).status.code() ==
          Code::kAlreadyExists);
}

TEST_CASE("a stale directory may start afresh once the name is free") {
  CoreRun run;
  run.Join("a");
  const std::string stale = run.SessionOf("a");
  run.Join("a", "", /*take_over=*/true);
  run.Do(LeaveEvent{"a", "done"});
  JoinEvent event;
  event.worker = "a";
  event.attempt = "fresh";
  event.previous_session = stale;
  event.new_session = "new";
  REQUIRE(run.Do(event).status.code() == Code::kPermissionDenied);
  event.fresh = true;
  REQUIRE(run.Do(event).status.ok());
}

TEST_CASE("unknown and empty session tokens are unauthenticated") {
  CoreRun run;
  run.Join("a");
  REQUIRE(WorkerOfSession(run.state, "").status().code() ==
          Code::kUnauthenticated);
  REQUIRE(WorkerOfSession(run.state, "nonsense").status().code() ==
          Code::kUnauthenticated);
}

TEST_CASE("a bad name is refused and join.max_workers is kept") {
  CoreRun run;
  REQUIRE(run.Join("../a").status.code() == Code::kInvalidArgument);
  REQUIRE(run.Join("").status.code() == Code::kInvalidArgument);
  run.policy.max_workers = 2;
  run.Join("a");
  run.Join("b");
  REQUIRE(run.Join("c").status.code() == Code::kResourceExhausted);
  REQUIRE(run.Join("a", run.SessionOf("a")).status.ok());
  run.Do(LeaveEvent{"b", ""});
  REQUIRE(run.Join("c").status.ok());
  REQUIRE(run.Join("b", run.SessionOf("b")).status.code() ==
          Code::kResourceExhausted);
}

TEST_CASE("an evicted worker is out for good") {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  REQUIRE(run.Do(EvictEvent{"a", "poisons"}).status.ok());
  REQUIRE(run.Do(EvictEvent{"a", "poisons"}).facts.empty());
  REQUIRE(WorkerOfSession(run.state, run.SessionOf("a")).status().code() ==
          Code::kPermissionDenied);
  REQUIRE(run.Join("a", run.SessionOf("a")).status.code() ==
          Code::kPermissionDenied);
  REQUIRE(run.Do(BeatEvent{"a"}).status.code() == Code::kPermissionDenied);
  REQUIRE(run.Deliver("a").status.code() == Code::kPermissionDenied);
  REQUIRE(run.View("a").leases.empty());
}

TEST_CASE("a worker that left is known, may leave again and join again") {
  CoreRun run;
  run.Join("a");
  REQUIRE(Has<WorkerDeparted>(run.Do(LeaveEvent{"a", "SIGTERM"})));
  const Decision again = run.Do(LeaveEvent{"a", "SIGTERM"});
  REQUIRE(again.status.ok());
  REQUIRE(again.facts.empty());
  REQUIRE(*WorkerOfSession(run.state, run.SessionOf("a")) == "a");
  REQUIRE(run.Do(BeatEvent{"a"}).status.code() == Code::kFailedPrecondition);
  REQUIRE(run.Join("a", run.SessionOf("a")).status.ok());
  REQUIRE(run.Do(BeatEvent{"a"}).status.ok());
}

TEST_CASE("a draining worker finishes its window and gets no new lease") {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  REQUIRE(run.Do(DrainEvent{"a"}).status.ok());
  REQUIRE(run.Do(DrainEvent{"a"}).facts.empty());
  REQUIRE(run.View("a").drain);
  REQUIRE(run.View("a").leases.size() == 1);
  run.Deliver("a");
  run.Deliver("b");
  REQUIRE(MemberNames(run.closed()) == Names{"a", "b"});
  run.Fold();
  REQUIRE(run.View("a").leases.empty());
  run.Do(LeaveEvent{"a", "drained"});
  REQUIRE(run.Do(DrainEvent{"a"}).status.code() == Code::kFailedPrecondition);
  REQUIRE(run.Do(DrainEvent{"x"}).status.code() == Code::kNotFound);
  REQUIRE(run.Join("a", run.SessionOf("a")).status.ok());
  REQUIRE_FALSE(run.View("a").drain);
}

TEST_CASE(
    "C8.2 after a restart every lease and the whole deadline start anew") {
  CoreRun run;
  run.policy.deadline = absl::Seconds(60);
  run.Join("a");
  run.Join("b");
  run.Deliver("a");
  run.Pass(absl::Seconds(29), {"a"});
  const State before = run.state;
  // The new process's clock may read anything.
  run.now = absl::Seconds(3);
  run.soft = StartSoft(run.state, run.now);
  REQUIRE(run.Tick().facts.empty());
  REQUIRE(run.state == before);
  // b has the whole lease to find the coordinator again.
  run.Pass(absl::Seconds(29), {"a"});
  REQUIRE(run.state.workers.at("b").membership == Membership::kActive);
  REQUIRE(run.View("a").leases[0].deadline_left == absl::Seconds(31));
  run.Pass(absl::Seconds(1), {"a"});
  REQUIRE(run.state.workers.at("b").membership == Membership::kLost);
}

TEST_CASE("after a restart a worker not heard of yet still gets its lease") {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  run.Deliver("a");
  run.Deliver("b");
  run.now = absl::Seconds(3);
  run.soft = StartSoft(run.state, run.now);
  run.now += absl::Seconds(20);  // Refolding takes its time.
  run.Fold();
  REQUIRE(run.open_round().leases.size() == 2);
}

TEST_CASE("C8.2 a silence longer than the lease is a loss, then a return") {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  run.Pass(absl::Hours(1), {});
  REQUIRE(run.state.workers.at("a").membership == Membership::kLost);
  REQUIRE(run.state.workers.at("b").membership == Membership::kLost);
  const Decision back = run.Do(BeatEvent{"a"});
  REQUIRE(Has<WorkerReturned>(back));
  REQUIRE(run.View("a").leases.size() == 1);
}

// Facts only: a decision for each would be slow.
void ComeAndGo(CoreRun& run, const std::string& name) {
  WorkerJoined joined;
  joined.worker = name;
  joined.session = name;
  REQUIRE(Evolve(run.state, joined).ok());
  REQUIRE(Evolve(run.state, WorkerDeparted{name, Departure::kLeft, ""}).ok());
}

TEST_CASE("workers that left are remembered up to a bound") {
  CoreRun run;
  run.policy.wait_for = 100000;  // No round opens.
  const auto name = [](size_t i) { return absl::StrCat("w", 10000 + i); };
  for (size_t i = 0; i <= kRememberedDepartures; ++i) ComeAndGo(run, name(i));
  run.Join("evicted");
  run.Do(EvictEvent{"evicted", ""});
  REQUIRE(run.state.workers.count(name(0)) == 0);
  REQUIRE(run.state.workers.count(name(1)) == 1);
  // One that came back is not the longest away any more.
  ComeAndGo(run, name(1));
  ComeAndGo(run, "x");
  REQUIRE(run.state.workers.count(name(1)) == 1);
  run.Join("y");
  REQUIRE(run.state.workers.count(name(2)) == 0);
  REQUIRE(run.state.workers.count("evicted") == 1);
  REQUIRE(run.state.workers.size() == kRememberedDepartures + 2);
}

TEST_CASE("a worker that a fold names is not forgotten before it is done") {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  run.Deliver("a");
  run.Do(LeaveEvent{"a", ""});
  run.Do(LeaveEvent{"b", ""});
  REQUIRE(run.folding());
  for (size_t i = 0; i < kRememberedDepartures; ++i) {
    ComeAndGo(run, absl::StrCat("w", i));
  }
  REQUIRE(run.state.workers.count("a") == 1);
  REQUIRE(run.state.workers.count("b") == 0);
  run.Fold();
  REQUIRE(run.state.workers.at("a").rounds_folded == 1);
  run.Join("last");
  REQUIRE(run.state.workers.count("a") == 0);
}

TEST_CASE("time in which the coordinator stood still does not count") {
  CoreRun run;
  run.policy.deadline = absl::Seconds(60);
  run.Join("a");
  run.Join("b");
  run.now += absl::Seconds(300);
  StandStill(run.soft, absl::Seconds(300));
  run.Tick();
  REQUIRE(run.round() == 1);
  REQUIRE(run.Count<WorkerDeparted>() == 0);
  REQUIRE(run.View("a").leases[0].deadline_left == absl::Seconds(60));
  REQUIRE(std::string(StandingOf(run.policy, run.state, run.soft, "a",
                                 run.now)) == "active");
  run.now += absl::Seconds(30);
  run.Tick();
  REQUIRE(run.Count<WorkerDeparted>() == 2);
}

}  // namespace
}  // namespace diloco

#include "tests/support/catch.h"
#include "tests/unit/core/core_run.h"

namespace diloco {
namespace {

using Code = absl::StatusCode;

TEST_CASE("no round opens while paused; the open one goes on") {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  REQUIRE(run.Do(PauseEvent{true, "maintenance"}).status.ok());
  REQUIRE(run.Do(PauseEvent{true, "maintenance"}).facts.empty());
  REQUIRE(run.View("a").phase == RunPhase::kPaused);
  REQUIRE(run.View("a").notice ==
          "round 1 waits for a and b; no round opens after it: paused: "
          "maintenance");
  REQUIRE(run.View("a").leases.size() == 1);
  run.Deliver("a");
  run.Deliver("b");
  run.Fold();
  REQUIRE(run.version() == 1);
  REQUIRE_FALSE(run.open());
  REQUIRE(run.View("a").notice == "paused: maintenance");
  REQUIRE(Has<RoundOpened>(run.Do(PauseEvent{false, ""})));
}

TEST_CASE("a run paused before it starts waits") {
  CoreRun run;
  run.Do(PauseEvent{true, "not yet"});
  run.Join("a");
  run.Join("b");
  REQUIRE_FALSE(run.open());
  run.Do(PauseEvent{false, ""});
  REQUIRE(run.open());
}

TEST_CASE("stop ends the run after the open round, or a later one") {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  StopEvent stop;
  stop.reason = "enough";
  SECTION("the open one") {
    REQUIRE(run.Do(stop).status.ok());
    REQUIRE(run.Do(stop).facts.empty());
    REQUIRE_FALSE(run.state.finished);
    REQUIRE(run.View("a").notice ==
            "round 1 waits for a and b; the run ends after round 1: enough");
  }
  SECTION("a later one") {
    stop.after_round = 2;
    REQUIRE(run.Do(stop).status.ok());
    run.Deliver("a");
    run.Deliver("b");
    run.Fold();
    REQUIRE(run.open());
    stop.after_round = 1;
    REQUIRE(run.Do(stop).status.code() == Code::kInvalidArgument);
  }
  run.Deliver("a");
  run.Deliver("b");
  run.Fold();
  REQUIRE(run.state.finished);
  REQUIRE(run.state.finish_reason.find("enough") != std::string::npos);
  REQUIRE_FALSE(run.open());
  REQUIRE(run.Do(PauseEvent{true, ""}).status.code() ==
          Code::kFailedPrecondition);
  REQUIRE(run.View("a").phase == RunPhase::kFinished);
}

TEST_CASE("stop between rounds ends the run at once") {
  CoreRun run;
  run.Join("a");
  REQUIRE(run.Do(StopEvent{}).status.ok());
  REQUIRE(run.state.finished);
}

TEST_CASE("a stop also holds when the last round is void") {
  CoreRun run;
  run.policy.short_round = ShortRound::kVoid;
  run.policy.deadline = absl::Seconds(20);
  run.Join("a");
  run.Join("b");
  run.Do(StopEvent{});
  run.Pass(absl::Seconds(20), {"a", "b"});
  REQUIRE(run.state.finished);
  REQUIRE(run.version() == 0);
}

TEST_CASE("after the end nothing opens, and workers may still come and go") {
  CoreRun run;
  run.Join("a");
  run.Do(StopEvent{});
  REQUIRE(run.Join("b").status.ok());
  REQUIRE(run.View("b").phase == RunPhase::kFinished);
  run.Pass(absl::Seconds(60), {"b"});
  REQUIRE(run.state.workers.at("a").membership == Membership::kLost);
  REQUIRE(run.Do(LeaveEvent{"b", ""}).status.ok());
  REQUIRE(run.Count<RoundOpened>() == 0);
  REQUIRE(run.Count<RunFinished>() == 1);
}

TEST_CASE("a view for an unknown name shows the phase only") {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  const WorkerView view = run.View("nobody");
  REQUIRE(view.phase == RunPhase::kRunning);
  REQUIRE(view.leases.empty());
  REQUIRE(view.notice == "round 1 waits for a and b");
}

}  // namespace
}  // namespace diloco

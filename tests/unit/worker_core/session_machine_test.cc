#include "worker/core/session_machine.h"

#include "tests/support/catch.h"

namespace diloco {
namespace {

using Kind = Action::Kind;

ViewInput Running(uint64_t version, uint64_t round, uint32_t steps) {
  ViewInput view;
  view.phase = ViewInput::Phase::kRunning;
  view.version = version;
  view.lease = ViewInput::Lease{round, version, steps, false};
  return view;
}

LocalState Holding(uint64_t version) {
  LocalState local;
  local.version = version;
  return local;
}

Kind Next(const LocalState& local, const ViewInput& view) {
  return NextAction(local, view, LatePolicy::kCarry).kind;
}

TEST_CASE("a worker without theta pulls it first") {
  REQUIRE(Next(LocalState{}, Running(3, 4, 10)) == Kind::kPull);
}

TEST_CASE("a worker whose copy has another digest pulls afresh") {
  LocalState local = Holding(3);
  ViewInput view = Running(3, 4, 10);
  view.damaged = true;
  REQUIRE(Next(local, view) == Kind::kPull);
  local.window = {
      .round = 4, .base_version = 3, .steps_done = 2, .tokens = 20, .steps = 2};
  REQUIRE(Next(local, view) == Kind::kPull);
}

TEST_CASE("a lease is begun, stepped through and submitted") {
  LocalState local = Holding(3);
  const ViewInput view = Running(3, 4, 2);
  REQUIRE(Next(local, view) == Kind::kBegin);
  BeginWindow(local, *view.lease, /*carry=*/false);
  REQUIRE(Next(local, view) == Kind::kStep);
  local.window.steps_done = local.window.steps = 1;
  REQUIRE(Next(local, view) == Kind::kStep);
  local.window.steps_done = local.window.steps = 2;
  REQUIRE(Next(local, view) == Kind::kSubmit);
  local.window.delivered = true;
  REQUIRE(Next(local, view) == Kind::kWait);
}

TEST_CASE("a window that is full is submitted, whatever the lease has left") {
  LocalState local = Holding(3);
  ViewInput view = Running(3, 4, 5);
  view.lease->window_steps = 8;
  local.window = {.round = 4, .base_version = 3, .tokens = 70, .steps = 7};
  REQUIRE(Next(local, view) == Kind::kStep);
  local.window.steps_done = 1;
  local.window.steps = 8;
  REQUIRE(Next(local, view) == Kind::kSubmit);
}

TEST_CASE("after a cold start the probe comes first, on the newest version") {
  LocalState local;
  local.probe_due = true;
  ViewInput view = Running(3, 4, 5);
  view.evals = {{3, 0}};
  REQUIRE(Next(local, view) == Kind::kPull);
  local.version = 2;
  REQUIRE(Next(local, view) == Kind::kCatchUp);
  local.version = 3;
  REQUIRE(Next(local, view) == Kind::kProbe);
  local.probe_due = false;
  REQUIRE(Next(local, view) == Kind::kEvaluate);
}

TEST_CASE("an update that the coordinator already has is not trained again") {
  ViewInput view = Running(3, 4, 2);
  view.lease->delivered = true;
  REQUIRE(Next(Holding(3), view) == Kind::kWait);
}

TEST_CASE("C6.5 a late worker carries its steps into the next round") {
  LocalState local = Holding(3);
  local.window = {
      .round = 4, .base_version = 3, .steps_done = 5, .tokens = 50, .steps = 5};
  const ViewInput view = Running(4, 5, 2);
  const Action action = NextAction(local, view, LatePolicy::kCarry);
  REQUIRE(action.kind == Kind::kCatchUp);
  REQUIRE(action.carry);
  FinishCatchUp(local, 4, true);
  REQUIRE(Next(local, view) == Kind::kBegin);
  BeginWindow(local, *view.lease, /*carry=*/true);
  REQUIRE(local.window.steps_done == 0);
  REQUIRE(local.window.tokens == 50);
  REQUIRE(local.window.steps == 5);
}

TEST_CASE("C6.5 late: reject drops the steps and says so") {
  LocalState local = Holding(3);
  local.window = {
      .round = 4, .base_version = 3, .steps_done = 5, .tokens = 50, .steps = 5};
  const Action action =
      NextAction(local, Running(4, 5, 2), LatePolicy::kReject);
  REQUIRE(action.kind == Kind::kCatchUp);
  REQUIRE_FALSE(action.carry);
  REQUIRE(action.reason.find("5 steps are dropped") != std::string::npos);
  FinishCatchUp(local, 4, false);
  REQUIRE(local.window == Window{});
}

TEST_CASE("a delivered window is replaced, not carried") {
  LocalState local = Holding(3);
  local.window = {.round = 4,
                  .base_version = 3,
                  .steps_done = 2,
                  .tokens = 20,
                  .steps = 2,
                  .delivered = true};
  const Action action = NextAction(local, Running(4, 5, 2), LatePolicy::kCarry);
  REQUIRE(action.kind == Kind::kCatchUp);
  REQUIRE_FALSE(action.carry);
}

TEST_CASE("C6.4 a new lease on the same base starts from the anchor") {
  // Round 4 was void.
  const ViewInput view = Running(3, 5, 2);
  LocalState local = Holding(3);
  local.window = {
      .round = 4, .base_version = 3, .steps_done = 2, .tokens = 20, .steps = 2};
  SECTION("after a delivered or refused update") {
    local.window.delivered = true;
    const Action action = NextAction(local, view, LatePolicy::kCarry);
    REQUIRE(action.kind == Kind::kBegin);
    REQUIRE_FALSE(action.carry);
    BeginWindow(local, *view.lease, action.carry);
    REQUIRE(local.window == Window{.round = 5, .base_version = 3});
  }
  SECTION("after an unsent window under late: reject") {
    const Action action = NextAction(local, view, LatePolicy::kReject);
    REQUIRE(action.kind == Kind::kBegin);
    REQUIRE_FALSE(action.carry);
    REQUIRE(action.reason.find("2 steps are dropped") != std::string::npos);
  }
  SECTION("but unsent steps are carried under late: carry") {
    const Action action = NextAction(local, view, LatePolicy::kCarry);
    REQUIRE(action.kind == Kind::kBegin);
    REQUIRE(action.carry);
    BeginWindow(local, *view.lease, action.carry);
    REQUIRE(local.window.steps == 2);
    REQUIRE(local.window.tokens == 20);
    REQUIRE(local.window.steps_done == 0);
  }
}

TEST_CASE("evaluation happens at any step of a window, once a slice") {
  LocalState local = Holding(3);
  ViewInput view = Running(3, 4, 2);
  view.evals = {{2, 0}, {3, 1}};
  const Action action = NextAction(local, view, LatePolicy::kCarry);
  REQUIRE(action.kind == Kind::kEvaluate);
  REQUIRE(action.slice == 1);
  local.evaluated.push_back(1);
  REQUIRE(Next(local, view) == Kind::kBegin);
  local.window.round = 4;
  local.window.steps_done = local.window.steps = 1;
  REQUIRE(Next(local, view) == Kind::kStep);
  view.evals.push_back({3, 2});
  REQUIRE(Next(local, view) == Kind::kEvaluate);
}

TEST_CASE("a finished run is evaluated, then left") {
  LocalState local = Holding(7);
  ViewInput view;
  view.phase = ViewInput::Phase::kFinished;
  view.version = 7;
  view.evals = {{7, 0}};
  REQUIRE(Next(local, view) == Kind::kEvaluate);
  local.evaluated.push_back(0);
  REQUIRE(Next(local, view) == Kind::kFinish);
}

TEST_CASE("C5.4 a leaving worker finishes its window or hands in its steps") {
  LocalState local = Holding(3);
  ViewInput view = Running(3, 4, 4);
  BeginWindow(local, *view.lease, /*carry=*/false);
  local.window.steps_done = local.window.steps = 2;
  view.leaving = Leaving::kAfterWindow;
  REQUIRE(Next(local, view) == Kind::kStep);
  view.leaving = Leaving::kWithSteps;
  REQUIRE(Next(local, view) == Kind::kSubmit);
  local.window.delivered = true;
  REQUIRE(Next(local, view) == Kind::kLeave);
}

TEST_CASE("C5.4 a leaving worker takes on nothing new") {
  const Leaving leaving = GENERATE(Leaving::kAfterWindow, Leaving::kWithSteps);
  ViewInput view = Running(3, 4, 2);
  view.leaving = leaving;
  SECTION("nothing is held yet") {
    REQUIRE(Next(LocalState{}, view) == Kind::kLeave);
  }
  SECTION("a lease that was not begun") {
    REQUIRE(Next(Holding(3), view) == Kind::kLeave);
  }
  SECTION("a version that came out") {
    LocalState local = Holding(2);
    local.window = {.round = 3, .base_version = 2, .steps_done = 1, .steps = 1};
    REQUIRE(Next(local, view) == Kind::kLeave);
  }
  SECTION("an evaluation") {
    view.evals.push_back({3, 0});
    view.lease.reset();
    REQUIRE(Next(Holding(3), view) == Kind::kLeave);
  }
  SECTION("no step was done") {
    LocalState local = Holding(3);
    BeginWindow(local, *view.lease, /*carry=*/false);
    REQUIRE(Next(local, view) ==
            (leaving == Leaving::kAfterWindow ? Kind::kStep : Kind::kLeave));
  }
  SECTION("the run is over") {
    view.phase = ViewInput::Phase::kFinished;
    REQUIRE(Next(Holding(3), view) == Kind::kFinish);
  }
}

TEST_CASE("a window of which an update was taken is not trained on") {
  LocalState local = Holding(3);
  const ViewInput view = Running(3, 4, 5);
  BeginWindow(local, *view.lease, /*carry=*/false);
  local.window.steps_done = local.window.steps = 2;
  local.taken_round = 3;
  REQUIRE(Next(local, view) == Kind::kStep);
  local.taken_round = 4;
  REQUIRE(Next(local, view) == Kind::kSubmit);
}

TEST_CASE("a window fits when its steps and its upload do") {
  CHECK(WindowFits(4, 2.0, 1.5, absl::Seconds(10)));
  CHECK_FALSE(WindowFits(4, 2.0, 2.5, absl::Seconds(10)));
  CHECK_FALSE(WindowFits(5, 2.0, 1.5, absl::Seconds(10)));
  // Not measured.
  CHECK_FALSE(WindowFits(1, 0, 1.5, absl::Seconds(10)));
  CHECK_FALSE(WindowFits(1, 2.0, 0, absl::Seconds(10)));
}

TEST_CASE("a lease on another base than the one held waits for the next view") {
  ViewInput view = Running(3, 4, 2);
  view.lease->base_version = 2;
  REQUIRE(Next(Holding(3), view) == Kind::kWait);
}

}  // namespace
}  // namespace diloco

#include "worker/core/session_machine.h"

#include "tests/support/catch.h"

namespace diloco {
namespace {

using Kind = Action::Kind;

ViewInput Running(uint64_t version, uint64_t round, uint32_t steps) {
  ViewInput view;
  view.phase = ViewInput::Phase::kRunning;
  view.fragments.resize(1);
  view.fragments[0].version = version;
  view.fragments[0].lease = ViewInput::Lease{round, version, steps, false};
  return view;
}

// Of one fragment.
struct Local : LocalState {
  Local() { fragments.resize(1); }
  explicit Local(uint64_t version) : Local() { fragments[0].version = version; }
  Window& window() { return fragments[0].window; }
};

Action Next(const LocalState& local, const ViewInput& view, LatePolicy late) {
  return NextAction(local, view, {late, 0, false});
}

Kind Next(const LocalState& local, const ViewInput& view) {
  return Next(local, view, LatePolicy::kCarry).kind;
}

TEST_CASE("a worker without theta pulls it first") {
  REQUIRE(Next(Local(), Running(3, 4, 10)) == Kind::kPull);
}

TEST_CASE("a worker whose copy has another digest pulls afresh") {
  Local local(3);
  ViewInput view = Running(3, 4, 10);
  view.fragments[0].damaged = true;
  REQUIRE(Next(local, view) == Kind::kPull);
  local.window() = {
      .round = 4, .base_version = 3, .steps_done = 2, .tokens = 20, .steps = 2};
  REQUIRE(Next(local, view) == Kind::kPull);
}

TEST_CASE("a lease is begun, stepped through and submitted") {
  Local local(3);
  const ViewInput view = Running(3, 4, 2);
  REQUIRE(Next(local, view) == Kind::kBegin);
  BeginWindow(local.fragments[0], *view.fragments[0].lease, /*carry=*/false);
  REQUIRE(Next(local, view) == Kind::kStep);
  local.window().steps_done = local.window().steps = 1;
  REQUIRE(Next(local, view) == Kind::kStep);
  local.window().steps_done = local.window().steps = 2;
  REQUIRE(Next(local, view) == Kind::kSubmit);
  local.window().delivered = true;
  REQUIRE(Next(local, view) == Kind::kWait);
}

TEST_CASE("a window that is full is submitted, whatever the lease has left") {
  Local local(3);
  ViewInput view = Running(3, 4, 5);
  view.fragments[0].lease->window_steps = 8;
  local.window() = {.round = 4, .base_version = 3, .tokens = 70, .steps = 7};
  REQUIRE(Next(local, view) == Kind::kStep);
  local.window().steps_done = 1;
  local.window().steps = 8;
  REQUIRE(Next(local, view) == Kind::kSubmit);
}

TEST_CASE("after a cold start the probe comes first, on the newest version") {
  Local local;
  local.probe_due = true;
  ViewInput view = Running(3, 4, 5);
  view.evals = {{3, 0, {}}};
  REQUIRE(Next(local, view) == Kind::kPull);
  local.fragments[0].version = 2;
  REQUIRE(Next(local, view) == Kind::kCatchUp);
  local.fragments[0].version = 3;
  REQUIRE(Next(local, view) == Kind::kProbe);
  local.probe_due = false;
  REQUIRE(Next(local, view) == Kind::kEvaluate);
}

TEST_CASE("an update that the coordinator already has is not trained again") {
  ViewInput view = Running(3, 4, 2);
  view.fragments[0].lease->delivered = true;
  REQUIRE(Next(Local(3), view) == Kind::kWait);
}

TEST_CASE("C6.5 a late worker carries its steps into the next round") {
  Local local(3);
  local.window() = {
      .round = 4, .base_version = 3, .steps_done = 5, .tokens = 50, .steps = 5};
  const ViewInput view = Running(4, 5, 2);
  const Action action = Next(local, view, LatePolicy::kCarry);
  REQUIRE(action.kind == Kind::kCatchUp);
  REQUIRE(action.carry);
  FinishCatchUp(local.fragments[0], 4, true);
  REQUIRE(Next(local, view) == Kind::kBegin);
  BeginWindow(local.fragments[0], *view.fragments[0].lease, /*carry=*/true);
  REQUIRE(local.window().steps_done == 0);
  REQUIRE(local.window().tokens == 50);
  REQUIRE(local.window().steps == 5);
}

TEST_CASE("C6.5 late: reject drops the steps and says so") {
  Local local(3);
  local.window() = {
      .round = 4, .base_version = 3, .steps_done = 5, .tokens = 50, .steps = 5};
  const Action action = Next(local, Running(4, 5, 2), LatePolicy::kReject);
  REQUIRE(action.kind == Kind::kCatchUp);
  REQUIRE_FALSE(action.carry);
  REQUIRE(action.reason.find("5 steps are dropped") != std::string::npos);
  FinishCatchUp(local.fragments[0], 4, false);
  REQUIRE(local.window() == Window{});
}

TEST_CASE("an update whose receipt has not come is not said to be dropped") {
  Local local(3);
  local.window() = {
      .round = 4, .base_version = 3, .steps_done = 5, .tokens = 50, .steps = 5};
  local.fragments[0].taken_round = 4;
  const Action action = Next(local, Running(4, 5, 2), LatePolicy::kReject);
  REQUIRE(action.kind == Kind::kCatchUp);
  REQUIRE(action.reason ==
          "round 4 closed before the receipt of this worker's update came; "
          "unless it was in time, its 5 steps are dropped");
}

TEST_CASE("a delivered window is replaced, not carried") {
  Local local(3);
  local.window() = {.round = 4,
                    .base_version = 3,
                    .steps_done = 2,
                    .tokens = 20,
                    .steps = 2,
                    .delivered = true};
  const Action action = Next(local, Running(4, 5, 2), LatePolicy::kCarry);
  REQUIRE(action.kind == Kind::kCatchUp);
  REQUIRE_FALSE(action.carry);
}

TEST_CASE("C6.4 a new lease on the same base starts from the anchor") {
  // Round 4 was void.
  const ViewInput view = Running(3, 5, 2);
  Local local(3);
  local.window() = {
      .round = 4, .base_version = 3, .steps_done = 2, .tokens = 20, .steps = 2};
  SECTION("after a delivered or refused update") {
    local.window().delivered = true;
    const Action action = Next(local, view, LatePolicy::kCarry);
    REQUIRE(action.kind == Kind::kBegin);
    REQUIRE_FALSE(action.carry);
    BeginWindow(local.fragments[0], *view.fragments[0].lease, action.carry);
    REQUIRE(local.window() == Window{.round = 5, .base_version = 3});
  }
  SECTION("after an unsent window under late: reject") {
    const Action action = Next(local, view, LatePolicy::kReject);
    REQUIRE(action.kind == Kind::kBegin);
    REQUIRE_FALSE(action.carry);
    REQUIRE(action.reason.find("2 steps are dropped") != std::string::npos);
  }
  SECTION("but unsent steps are carried under late: carry") {
    const Action action = Next(local, view, LatePolicy::kCarry);
    REQUIRE(action.kind == Kind::kBegin);
    REQUIRE(action.carry);
    BeginWindow(local.fragments[0], *view.fragments[0].lease, action.carry);
    REQUIRE(local.window().steps == 2);
    REQUIRE(local.window().tokens == 20);
    REQUIRE(local.window().steps_done == 0);
  }
}

TEST_CASE("evaluation happens at any step of a window, once a slice") {
  Local local(3);
  ViewInput view = Running(3, 4, 2);
  view.evals = {{2, 0, {}}, {3, 1, {}}};
  const Action action = Next(local, view, LatePolicy::kCarry);
  REQUIRE(action.kind == Kind::kEvaluate);
  REQUIRE(action.slice == 1);
  local.evaluated.push_back(1);
  REQUIRE(Next(local, view) == Kind::kBegin);
  local.window().round = 4;
  local.window().steps_done = local.window().steps = 1;
  REQUIRE(Next(local, view) == Kind::kStep);
  view.evals.push_back({3, 2, {}});
  REQUIRE(Next(local, view) == Kind::kEvaluate);
}

TEST_CASE("a copy of theta is evaluated when each fragment's version is held") {
  LocalState local;
  local.fragments.resize(2);
  local.fragments[0].version = 3;
  local.fragments[1].version = 2;
  CHECK(ThetaVersion(local) == 5);
  ViewInput view;
  view.phase = ViewInput::Phase::kRunning;
  view.fragments.resize(2);
  view.evals = {{5, 0, {2, 3}}, {5, 1, {3, 2}}};
  const Action action = Next(local, view, LatePolicy::kCarry);
  CHECK(action.kind == Kind::kEvaluate);
  CHECK(action.slice == 1);
  CHECK(action.version == 5);
}

TEST_CASE("a finished run is evaluated, then left") {
  Local local(7);
  ViewInput view;
  view.phase = ViewInput::Phase::kFinished;
  view.fragments.resize(1);
  view.fragments[0].version = 7;
  view.evals = {{7, 0, {}}};
  REQUIRE(Next(local, view) == Kind::kEvaluate);
  local.evaluated.push_back(0);
  REQUIRE(Next(local, view) == Kind::kFinish);
}

TEST_CASE("C5.4 a leaving worker finishes its window or hands in its steps") {
  Local local(3);
  ViewInput view = Running(3, 4, 4);
  BeginWindow(local.fragments[0], *view.fragments[0].lease, /*carry=*/false);
  local.window().steps_done = local.window().steps = 2;
  view.leaving = Leaving::kAfterWindow;
  REQUIRE(Next(local, view) == Kind::kStep);
  view.leaving = Leaving::kWithSteps;
  REQUIRE(Next(local, view) == Kind::kSubmit);
  local.window().delivered = true;
  REQUIRE(Next(local, view) == Kind::kLeave);
}

TEST_CASE("C5.4 a leaving worker takes on nothing new") {
  const Leaving leaving = GENERATE(Leaving::kAfterWindow, Leaving::kWithSteps);
  ViewInput view = Running(3, 4, 2);
  view.leaving = leaving;
  SECTION("nothing is held yet") {
    REQUIRE(Next(Local(), view) == Kind::kLeave);
  }
  SECTION("a lease that was not begun") {
    REQUIRE(Next(Local(3), view) == Kind::kLeave);
  }
  SECTION("a version that came out") {
    Local local(2);
    local.window() = {
        .round = 3, .base_version = 2, .steps_done = 1, .steps = 1};
    REQUIRE(Next(local, view) == Kind::kLeave);
  }
  SECTION("an evaluation") {
    view.evals.push_back({3, 0, {}});
    view.fragments[0].lease.reset();
    REQUIRE(Next(Local(3), view) == Kind::kLeave);
  }
  SECTION("no step was done") {
    Local local(3);
    BeginWindow(local.fragments[0], *view.fragments[0].lease, /*carry=*/false);
    REQUIRE(Next(local, view) ==
            (leaving == Leaving::kAfterWindow ? Kind::kStep : Kind::kLeave));
  }
  SECTION("the run is over") {
    view.phase = ViewInput::Phase::kFinished;
    REQUIRE(Next(Local(3), view) == Kind::kFinish);
  }
}

TEST_CASE("a window of which an update was taken is not trained on") {
  Local local(3);
  const ViewInput view = Running(3, 4, 5);
  BeginWindow(local.fragments[0], *view.fragments[0].lease, /*carry=*/false);
  local.window().steps_done = local.window().steps = 2;
  local.fragments[0].taken_round = 3;
  REQUIRE(Next(local, view) == Kind::kStep);
  local.fragments[0].taken_round = 4;
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
  view.fragments[0].lease->base_version = 2;
  REQUIRE(Next(Local(3), view) == Kind::kWait);
}

// Two fragments that hold version 3 and train under leases of 4 steps; the
// second one is due two steps earlier.
struct TwoFragments {
  TwoFragments() {
    local.fragments.resize(2);
    view.phase = ViewInput::Phase::kRunning;
    view.fragments.resize(2);
    for (int i = 0; i < 2; ++i) {
      local.fragments[i].version = 3;
      view.fragments[i].version = 3;
      view.fragments[i].lease = ViewInput::Lease{4, 3, i == 0 ? 4u : 2u};
    }
  }
  Action Next() const { return NextAction(local, view, rules); }
  // Performs what is asked for until it is something else than a begin or a
  // step, and at most `steps` of these.
  Action Train(int steps) {
    for (Action next = Next();; next = Next()) {
      if (next.kind == Kind::kBegin) {
        BeginWindow(local.fragments[next.fragment],
                    *view.fragments[next.fragment].lease, next.carry);
      } else if (next.kind == Kind::kStep && steps > 0) {
        CountStep(local, 10, 0.5, 1.0);
        --steps;
      } else {
        return next;
      }
    }
  }
  void Deliver(uint32_t fragment) {
    local.fragments[fragment].window.delivered = true;
    view.fragments[fragment].lease->delivered = true;
  }
  // The fragment's round closes with this worker; the next lease is there.
  void Publish(uint32_t fragment, uint32_t steps) {
    ViewInput::Fragment& seen = view.fragments[fragment];
    ++seen.version;
    seen.lease = ViewInput::Lease{seen.lease->round + 1, seen.version, steps};
  }

  LocalState local;
  ViewInput view;
  SyncRules rules;
};

TEST_CASE("each fragment is due when its own window is over") {
  TwoFragments run;
  Action next = run.Train(9);
  CHECK(next.kind == Kind::kSubmit);
  CHECK(next.fragment == 1);
  CHECK(run.local.fragments[0].window.steps_done == 2);
  run.Deliver(1);
  // Without overlap nothing is trained until the result is merged.
  next = run.Next();
  CHECK(next.kind == Kind::kWait);
  CHECK(next.reason.find("(fragment 1)") != std::string::npos);
  run.Publish(1, 4);
  next = run.Next();
  CHECK(next.kind == Kind::kCatchUp);
  CHECK(next.fragment == 1);
  CHECK_FALSE(next.carry);
  FinishCatchUp(run.local.fragments[1], 4, next.carry);
  next = run.Train(9);
  CHECK(next.kind == Kind::kSubmit);
  CHECK(next.fragment == 0);
  CHECK(run.local.fragments[0].window.steps == 4);
  CHECK(run.local.fragments[1].window.steps == 2);
}

TEST_CASE("exact: a result is merged after as many steps as the overlap has") {
  TwoFragments run;
  run.rules.overlap = 1;
  REQUIRE(run.Train(9).kind == Kind::kSubmit);
  run.Deliver(1);
  // It is there at once, and still merged after the next step.
  run.Publish(1, 4);
  CHECK(run.Next().kind == Kind::kStep);
  const Action next = run.Train(9);
  CHECK(next.kind == Kind::kCatchUp);
  CHECK(next.fragment == 1);
  CHECK(run.local.fragments[1].ahead.steps == 1);
  FinishCatchUp(run.local.fragments[1], 4, next.carry);
  // The step since the take is the first of the next window.
  CHECK(run.local.fragments[1].window.steps == 1);
  CHECK(run.local.fragments[1].ahead == Window{});
  CHECK(run.Train(1).fragment == 0);
  run.Deliver(0);
  run.Publish(0, 4);
  run.Train(1);
  FinishCatchUp(run.local.fragments[0], 4, false);
  // Taken after step 2, so the next take is after step 6.
  CHECK(run.Train(9).fragment == 1);
  CHECK(run.local.fragments[1].window.steps == 4);
  CHECK(run.local.fragments[1].window.tokens == 40);
  CHECK(run.local.fragments[0].window.steps == 2);
}

// The first one is due at step 8 and the second one at step 10 of the run.
struct DueSteps : TwoFragments {
  DueSteps() {
    for (int i = 0; i < 2; ++i) {
      ViewInput::Lease& lease = *view.fragments[i].lease;
      lease.steps = 4;
      lease.due_step = i == 0 ? 8 : 10;
      lease.round_steps = 4;
      HeldFragment& held = local.fragments[i];
      held.window.round = lease.round;
      held.window.base_version = lease.base_version;
    }
    Done(0, 2);
    Done(1, 0);
  }
  ViewInput::Lease& lease(uint32_t fragment) {
    return *view.fragments[fragment].lease;
  }
  void Done(uint32_t fragment, uint32_t steps) {
    Window& window = local.fragments[fragment].window;
    window.steps = window.steps_done = steps;
  }
};

TEST_CASE("windows that lie as the run's rounds do are all filled") {
  DueSteps run;
  const Action next = run.Train(9);
  CHECK(next.kind == Kind::kSubmit);
  CHECK(next.fragment == 0);
  CHECK(next.reason.empty());
  CHECK(run.local.fragments[0].window.steps == 4);
  CHECK(run.local.fragments[1].window.steps == 2);
}

TEST_CASE("a window that lies too late is handed in when it is its turn") {
  DueSteps run;
  run.Done(1, 1);  // One step further than the first one's: that is shortened.
  const Action next = run.Train(9);
  CHECK(next.kind == Kind::kSubmit);
  CHECK(next.fragment == 0);
  CHECK(next.reason ==
        "hands in 3 steps of round 4, 1 before its window is full: it is its "
        "turn (fragment 0)");
  CHECK(run.local.fragments[1].window.steps == 2);
}

TEST_CASE("the pace of a slower worker does not shorten its windows") {
  DueSteps run;
  // It makes one step while others make two.
  run.lease(0).steps = run.lease(1).steps = 2;
  run.Done(0, 1);
  const Action next = run.Train(9);
  CHECK(next.kind == Kind::kSubmit);
  CHECK(next.fragment == 0);
  CHECK(run.local.fragments[0].window.steps == 2);
  CHECK(run.local.fragments[1].window.steps == 1);
}

TEST_CASE("nobody waits for a round while an earlier one waits for him") {
  DueSteps run;
  run.lease(0).window_steps = 9;  // Outlasts rounds: shortened by no other.
  run.Done(1, 3);
  Action next = run.Train(9);
  REQUIRE(next.fragment == 1);
  REQUIRE(run.local.fragments[0].window.steps == 3);
  run.local.fragments[1].taken_round = 4;
  SECTION("whose update is under way") { run.local.fragments[1].busy = true; }
  SECTION("whose result is not there") { run.Deliver(1); }
  next = run.Next();
  CHECK(next.kind == Kind::kSubmit);
  CHECK(next.fragment == 0);
}

TEST_CASE("an empty window and a later round are not handed in early") {
  DueSteps run;
  run.lease(0).window_steps = 9;
  run.Done(1, 4);
  REQUIRE(run.Next().fragment == 1);
  run.Deliver(1);
  REQUIRE(run.Next().kind == Kind::kSubmit);
  SECTION("nothing in it") { run.Done(0, 0); }
  SECTION("due after the one waited for") { run.lease(0).due_step = 12; }
  CHECK(run.Next().kind == Kind::kWait);
}

TEST_CASE("a last window is filled, unless somebody could wait for it") {
  DueSteps run;
  run.lease(0).last = run.lease(1).last = true;
  run.lease(1).due_step = 8;
  run.Done(1, 3);
  Action next = run.Train(9);
  REQUIRE(next.fragment == 1);
  run.Deliver(1);
  next = run.Next();
  CHECK(next.kind == Kind::kSubmit);
  CHECK(next.fragment == 0);
  run.lease(0).due_step = 9;
  CHECK(run.Next().kind == Kind::kWait);
}

TEST_CASE("nothing that was trained after the run's last window is left") {
  HeldFragment held;
  held.version = 3;
  held.window = {.round = 4, .base_version = 3, .steps = 4, .delivered = true};
  // As the window of another fragment was finished.
  held.ahead = {.steps_done = 2, .tokens = 20, .steps = 2};
  HeldFragment last = held;
  last.window.last = true;
  FinishCatchUp(held, 4, /*carry=*/false);
  CHECK(held.window.steps == 2);
  FinishCatchUp(last, 4, /*carry=*/false);
  CHECK(last.window == Window{});
  CHECK(last.ahead == Window{});
}

TEST_CASE("exact: a result that is not there after the overlap is waited for") {
  TwoFragments run;
  run.rules.overlap = 1;
  REQUIRE(run.Train(9).kind == Kind::kSubmit);
  run.Deliver(1);
  CHECK(run.Train(9).kind == Kind::kWait);
  CHECK(run.local.fragments[1].ahead.steps == 1);
}

TEST_CASE("slip: a result is merged when it is there") {
  TwoFragments run;
  run.rules.overlap = 2;
  run.rules.slip = true;
  REQUIRE(run.Train(9).fragment == 1);
  run.Deliver(1);
  SECTION("earlier than the overlap") {
    run.Publish(1, 4);
    CHECK(run.Next().kind == Kind::kCatchUp);
  }
  SECTION("later, and training goes on until then") {
    CHECK(run.Train(2).kind == Kind::kSubmit);
    run.Deliver(0);
    CHECK(run.Train(2).kind == Kind::kWait);
    CHECK(run.local.fragments[1].ahead.steps == 4);
    run.Publish(1, 4);
    const Action next = run.Next();
    CHECK(next.kind == Kind::kCatchUp);
    FinishCatchUp(run.local.fragments[1], 4, next.carry);
    // A due step that came meanwhile extends the window: it is over now.
    BeginWindow(run.local.fragments[1], *run.view.fragments[1].lease, true);
    CHECK(run.Next().kind == Kind::kSubmit);
    CHECK(run.local.fragments[1].window.steps == 4);
  }
}

TEST_CASE("nothing is trained ahead of a run's last result") {
  TwoFragments run;
  run.rules.overlap = 2;
  for (ViewInput::Fragment& fragment : run.view.fragments) {
    fragment.lease->steps = 2;
    fragment.lease->last = true;
  }
  CHECK(run.Train(9).fragment == 0);
  CHECK(run.local.fragments[0].window.last);
  run.Deliver(0);
  CHECK(run.Next().fragment == 1);
  run.Deliver(1);
  CHECK(run.Next().kind == Kind::kWait);
}

TEST_CASE("C6.5 a late update is carried with the steps since its take") {
  TwoFragments run;
  run.rules.overlap = 1;
  REQUIRE(run.Train(9).fragment == 1);
  run.local.fragments[1].taken_round = 4;
  run.Publish(1, 4);
  CHECK(run.Next().kind == Kind::kStep);
  const Action next = run.Train(1);
  CHECK(next.kind == Kind::kCatchUp);
  CHECK(next.carry);
  FinishCatchUp(run.local.fragments[1], 4, next.carry);
  run.local.fragments[1].taken_round = 0;
  const Window& window = run.local.fragments[1].window;
  CHECK(window.steps == 3);
  CHECK(window.tokens == 30);
  // Only the step since the take counts for the next lease.
  CHECK(run.Train(0).kind == Kind::kStep);
  CHECK(window.steps_done == 1);
}

TEST_CASE("a fragment whose rounds are over holds up no other") {
  TwoFragments run;
  // Its last result is merged.
  run.local.fragments[0].window = Window{};
  run.view.fragments[0].lease.reset();
  const Action next = run.Train(0);
  CHECK(next.kind == Kind::kStep);
  // While a result of the other is waited for, and without work for either,
  // there is nothing to train.
  REQUIRE(run.Train(9).fragment == 1);
  run.Deliver(1);
  CHECK(run.Next().kind == Kind::kWait);
  run.view.fragments[1].lease.reset();
  run.local.fragments[1].window = Window{};
  CHECK(run.Next().kind == Kind::kWait);
}

TEST_CASE("a paused run is not trained ahead of") {
  TwoFragments run;
  run.rules.overlap = 2;
  REQUIRE(run.Train(9).fragment == 1);
  run.Deliver(1);
  run.view.phase = ViewInput::Phase::kPaused;
  CHECK(run.Next().kind == Kind::kWait);
}

TEST_CASE("a leaving worker hands in what is done of every fragment") {
  TwoFragments run;
  run.Train(1);
  run.view.leaving = Leaving::kWithSteps;
  CHECK(run.Next().fragment == 0);
  CHECK(run.Next().kind == Kind::kSubmit);
  run.Deliver(0);
  CHECK(run.Next().fragment == 1);
  CHECK(run.Next().kind == Kind::kSubmit);
  run.Deliver(1);
  CHECK(run.Next().kind == Kind::kLeave);
}

TEST_CASE("a step's progress is that of the fragment which is furthest") {
  TwoFragments run;
  run.rules.overlap = 1;
  run.view.fragments[0].lease->progress = 0.5;
  run.view.fragments[0].lease->progress_step = 0.125;
  run.view.fragments[1].lease->progress = 0.25;
  run.view.fragments[1].lease->progress_step = 0.125;
  run.Train(0);
  CHECK(ProgressOfNextStep(run.local) == 0.625);
  run.Train(2);
  run.Deliver(1);
  // The steps since a take are behind those of its window.
  run.local.fragments[0].window.progress = 0;
  run.Train(1);
  CHECK(ProgressOfNextStep(run.local) == 0.25 + 4 * 0.125);
}

}  // namespace
}  // namespace diloco

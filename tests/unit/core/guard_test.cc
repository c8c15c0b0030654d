// The guard: alarms that pause the run.
#include <cmath>

#include "tests/support/catch.h"
#include "tests/unit/core/core_run.h"

namespace diloco {
namespace {

class GuardedRun : public CoreRun {
 public:
  GuardedRun() {
    policy.eval_every = 1;
    policy.eval_windows = 2;
    Join("a");
    Join("b");
  }
  // Both slices of the open evaluation with this loss a token.
  void Evaluate(double loss) {
    const EvalState eval = *state.eval;
    for (uint32_t i = 0; i < eval.slices.size(); ++i) {
      EvalReportEvent report{eval.slices[i].worker, eval.version, i, loss * 10,
                             10};
      REQUIRE(Do(report).status.ok());
    }
  }
  void Round(double norm_a = 1, double norm_b = 1) {
    for (const auto& [name, norm] :
         std::map<std::string, double>{{"a", norm_a}, {"b", norm_b}}) {
      UpdateVerifiedEvent event = Verified(name, Value(name));
      event.norm = norm;
      REQUIRE(Do(event).status.ok());
    }
    Fold();
  }
};

TEST_CASE("an evaluation that rises pauses the run, with the figures") {
  GuardedRun run;
  run.policy.guard_eval_rise = 0.3;
  run.Evaluate(4.0);
  run.Round();
  run.Evaluate(3.5);
  run.Round();
  run.Evaluate(3.75);
  REQUIRE_FALSE(run.state.paused);
  run.Round();
  const double loss = GENERATE(3.875, std::nan(""));
  run.Evaluate(loss);
  REQUIRE(run.state.paused);
  REQUIRE(run.LastFact<PauseChanged>()->guard);
  INFO(run.state.pause_reason);
  REQUIRE(run.state.pause_reason.find("the evaluation of version 3 has loss") !=
          std::string::npos);
  REQUIRE(run.state.pause_reason.find("3.5000 at version 1") !=
          std::string::npos);
  // The open round is folded, none opens after it.
  run.Round();
  REQUIRE_FALSE(run.open());
  // Resumed, it compares with what comes, not with what is known.
  run.Evaluate(3.875);
  REQUIRE(run.Do(PauseEvent{false, ""}).status.ok());
  REQUIRE(run.open());
  run.Tick();
  REQUIRE_FALSE(run.state.paused);
  run.Round();
  run.Evaluate(3.875);
  REQUIRE_FALSE(run.state.paused);
  run.Round();
  run.Evaluate(4.25);
  REQUIRE(run.state.paused);
}

TEST_CASE("a norm that jumps pauses the run") {
  GuardedRun run;
  run.policy.guard_norm_jump = 4;
  run.Round(100, 1);  // Nothing to compare with yet.
  for (int i = 0; i < 5; ++i) run.Round(1, 1.5);
  run.Round(4, 6);  // 4 times the median of 1.5.
  REQUIRE_FALSE(run.state.paused);
  run.Round(1, 7);
  REQUIRE(run.state.paused);
  INFO(run.state.pause_reason);
  REQUIRE(run.state.pause_reason.find(
              "the update of b in round 8 has norm 7") != std::string::npos);
  REQUIRE_FALSE(run.open());
  run.Do(PauseEvent{false, ""});
  REQUIRE(run.open());
  run.Round(50, 50);
  REQUIRE_FALSE(run.state.paused);
}

TEST_CASE("an alarm that a crash cut off is raised again") {
  GuardedRun run;
  run.policy.guard_eval_rise = 0.3;
  run.Evaluate(3.0);
  run.Round();
  const EvalState eval = *run.state.eval;
  for (uint32_t i = 0; i < eval.slices.size(); ++i) {
    REQUIRE(Evolve(run.state,
                   EvalReported{eval.version, i, eval.slices[i].worker, 50, 10})
                .ok());
  }
  REQUIRE_FALSE(run.state.paused);
  run.Tick();
  REQUIRE(run.state.paused);
}

TEST_CASE("without a guard nothing pauses, and the operator's pause is his") {
  GuardedRun run;
  run.Evaluate(3.0);
  for (int i = 0; i < 6; ++i) run.Round(1, 1);
  run.Round(1e9, 1);
  run.Evaluate(9.0);
  REQUIRE_FALSE(run.state.paused);
  run.Do(PauseEvent{true, "mine"});
  run.Do(PauseEvent{false, ""});
  REQUIRE(run.state.guard.lowest->loss == 3.0);
}

}  // namespace
}  // namespace diloco

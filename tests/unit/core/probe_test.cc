// The probe of a worker that starts cold.
#include <cmath>

#include "tests/support/catch.h"
#include "tests/unit/core/core_run.h"

namespace diloco {
namespace {

// Version 1 is published, its two slices evaluated with these losses.
CoreRun Evaluated(double first, double second) {
  CoreRun run;
  run.policy.eval_every = 1;
  run.policy.eval_windows = 8;
  run.Join("a");
  run.Join("b");
  for (const char* name : {"a", "b"}) run.Deliver(name);
  run.Fold();
  run.Do(EvalReportEvent{"a", 1, 0, 100 * first, 100});
  run.Do(EvalReportEvent{"b", 1, 1, 100 * second, 100});
  run.Join("c");
  return run;
}

// Of the slice that c is shown, with this loss.
ProbeEvent ProbeOf(const CoreRun& run, double loss) {
  const EvalView slice = *run.View("c").probe;
  return {"c", slice.version, slice.first_window, slice.windows, 50 * loss, 50};
}

TEST_CASE("a probe whose loss agrees within 1 % passes") {
  CoreRun run = Evaluated(3.0, 4.0);
  REQUIRE(run.View("c").probe.has_value());
  REQUIRE(run.View("c").probe->version == 1);
  REQUIRE(run.View("c").probe->first_window == 0);
  REQUIRE(run.View("c").probe->windows == 4);
  const double loss = GENERATE(3.0, 2.9701, 3.0299);
  const Decision decision = run.Do(ProbeOf(run, loss));
  REQUIRE(decision.status.ok());
  REQUIRE(decision.facts.empty());
  REQUIRE(run.state.workers.at("c").membership == Membership::kActive);
}

TEST_CASE("a probe with another loss is refused, with both figures") {
  CoreRun run = Evaluated(3.0, 4.0);
  const double loss = GENERATE(3.0301, 2.9699, 0.0, std::nan(""), INFINITY);
  const Decision decision = run.Do(ProbeOf(run, loss));
  REQUIRE(decision.status.ok());
  REQUIRE(run.LastFact<WorkerDeparted>()->departure == Departure::kRefused);
  const WorkerState& c = run.state.workers.at("c");
  REQUIRE(c.membership == Membership::kLeft);
  REQUIRE(
      c.refusal.find("the run has 3 (windows 0 to 3): more than 1 % apart") !=
      std::string::npos);
  REQUIRE(StandingOf(run.policy, run.state, run.soft, "c", run.now) ==
          std::string("refused"));
  // Said again it is the same, as is every other beat.
  const Decision again = run.Do(ProbeOf(run, 3.0));
  REQUIRE(again.status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(again.status.message() == c.refusal);
  REQUIRE(run.Do(BeatEvent{"c"}).status == again.status);
  // Nor does a lease that was given before the verdict help.
  run.state.fragments[0].open->leases["c"] = Lease{"c", 5};
  REQUIRE(JudgeUpload(run.policy, run.state, "c", 0, run.round(),
                      run.Value("c"), 1000)
              .status()
              .message() == c.refusal);
  run.state.fragments[0].open->leases.erase("c");
  // It takes no part.
  for (const char* name : {"a", "b"}) run.Deliver(name);
  run.Fold();
  REQUIRE(run.open_round().leases.count("c") == 0);

  SECTION("once it is mended it may join") {
    REQUIRE(run.Join("c").status.ok());
    REQUIRE(run.state.workers.at("c").refusal.empty());
    REQUIRE(run.state.workers.at("c").membership == Membership::kActive);
  }
}

TEST_CASE("what cannot be compared passes") {
  CoreRun run = Evaluated(3.0, 4.0);
  ProbeEvent probe = ProbeOf(run, 9.0);
  SECTION("no loss was found") { probe.tokens = 0; }
  SECTION("of another version") { probe.version = 0; }
  SECTION("of other windows") { probe.windows = 8; }
  SECTION("the model has diverged") {
    run = Evaluated(std::nan(""), std::nan(""));
    REQUIRE_FALSE(run.View("c").probe.has_value());
  }
  const ProbeVerdict verdict = JudgeProbe(run.state, probe);
  REQUIRE(verdict.kind == ProbeVerdict::Kind::kNotCompared);
  REQUIRE(run.Do(probe).facts.empty());
  REQUIRE(run.state.workers.at("c").membership == Membership::kActive);
}

TEST_CASE("a slice that was reported is enough for probes") {
  CoreRun run;
  run.policy.eval_every = 1;
  run.policy.eval_windows = 8;
  run.Join("a");
  run.Join("b");
  for (const char* name : {"a", "b"}) run.Deliver(name);
  run.Fold();
  REQUIRE_FALSE(run.View("a").probe.has_value());
  run.Do(EvalReportEvent{"b", 1, 1, 400, 100});
  REQUIRE(run.View("a").probe->first_window == 4);
}

}  // namespace
}  // namespace diloco

#include <cmath>

#include "tests/support/catch.h"
#include "tests/unit/core/core_run.h"

namespace diloco {
namespace {

using Code = absl::StatusCode;

CoreRun EvaluatedRun() {
  CoreRun run;
  run.policy.eval_every = 1;
  run.policy.eval_windows = 7;
  run.Join("a");
  run.Join("b");
  return run;
}

void FinishRound(CoreRun& run) {
  run.Deliver("a");
  run.Deliver("b");
  run.Fold();
}

EvalReportEvent Report(const CoreRun& run, uint32_t slice, double loss_sum,
                       uint64_t tokens) {
  return EvalReportEvent{run.state.eval->slices[slice].worker,
                         run.state.eval->version, slice, loss_sum, tokens};
}

TEST_CASE("an evaluation is split over the workers of the next round") {
  CoreRun run = EvaluatedRun();
  REQUIRE(run.state.eval->version == 0);
  const EvalOpened* opened = run.LastFact<EvalOpened>();
  REQUIRE(opened->slices ==
          std::vector<EvalOpened::Slice>{{"a", 0, 4}, {"b", 4, 3}});
  REQUIRE(run.View("b").evals.size() == 1);
  REQUIRE(run.View("b").evals[0].first_window == 4);
  run.Deliver("a");
  run.Deliver("b");
  const Decision fold = run.Fold();
  REQUIRE(Has<EvalAbandoned>(fold));
  REQUIRE(Has<EvalOpened>(fold));
  REQUIRE(run.state.eval->version == 1);
}

TEST_CASE("an evaluation is published when all slices are in") {
  CoreRun run = EvaluatedRun();
  const EvalReportEvent a = Report(run, 0, 40.0, 10);
  const EvalReportEvent b = Report(run, 1, 20.0, 20);
  REQUIRE(run.Do(b).status.ok());
  REQUIRE_FALSE(run.state.last_eval.has_value());
  REQUIRE(run.View("b").evals.empty());
  REQUIRE(run.Do(a).status.ok());
  REQUIRE(run.state.last_eval->version == 0);
  REQUIRE(run.state.last_eval->loss == 2.0);
  REQUIRE(run.state.last_eval->tokens == 30);
  REQUIRE_FALSE(run.state.eval.has_value());
  // Repeats.
  REQUIRE(run.Do(a).status.ok());
  REQUIRE(run.Do(a).facts.empty());
  EvalReportEvent other = a;
  other.loss_sum = 41.0;
  REQUIRE(run.Do(other).status.code() == Code::kAlreadyExists);
}

TEST_CASE("what a rollback makes unknown is evaluated again") {
  CoreRun run = EvaluatedRun();
  const auto report = [&run] {
    const EvalReportEvent a = Report(run, 0, 40.0, 10);
    const EvalReportEvent b = Report(run, 1, 20.0, 20);
    run.Do(a);
    run.Do(b);
  };
  report();
  FinishRound(run);
  report();
  FinishRound(run);
  REQUIRE(run.state.last_eval->version == 1);
  REQUIRE(run.state.eval->version == 2);
  const auto roll_back = [&run](uint64_t version) {
    LineageStarted lineage;
    lineage.lineage = std::string(16, 'm');
    lineage.fragments.resize(1);
    lineage.fragments[0].version = version;
    lineage.fragments[0].digest = CoreRun::VersionDigest(version);
    REQUIRE(Evolve(run.state, lineage).ok());
    run.soft = StartSoft(run.state, run.now);
    run.Join("a");
    run.Join("b");
    REQUIRE(run.open());
  };
  SECTION("an older one's result is not kept") {
    roll_back(0);
    REQUIRE_FALSE(run.state.last_eval.has_value());
    REQUIRE(run.state.eval->version == 0);
  }
  SECTION("one that was under way is begun anew") {
    roll_back(2);
    REQUIRE(run.state.eval->version == 2);
  }
  SECTION("the newest result stays known") {
    roll_back(1);
    REQUIRE(run.state.last_eval->version == 1);
    REQUIRE_FALSE(run.state.eval.has_value());
  }
}

TEST_CASE("bad evaluation reports are refused") {
  CoreRun run = EvaluatedRun();
  EvalReportEvent report = Report(run, 0, 40.0, 10);
  SECTION("version") {
    report.version = 5;
    REQUIRE(run.Do(report).status.code() == Code::kFailedPrecondition);
  }
  SECTION("slice") {
    report.slice = 2;
    REQUIRE(run.Do(report).status.code() == Code::kInvalidArgument);
  }
  SECTION("worker") {
    report.worker = "b";
    REQUIRE(run.Do(report).status.code() == Code::kFailedPrecondition);
  }
  SECTION("tokens") {
    report.tokens = 0;
    REQUIRE(run.Do(report).status.code() == Code::kInvalidArgument);
  }
  SECTION("loss") {
    report.loss_sum = -1;
    REQUIRE(run.Do(report).status.code() == Code::kInvalidArgument);
  }
  SECTION("other values before completion") {
    REQUIRE(run.Do(report).status.ok());
    REQUIRE(run.Do(report).status.ok());
    report.tokens = 11;
    REQUIRE(run.Do(report).status.code() == Code::kAlreadyExists);
  }
}

TEST_CASE("a diverged model's loss is reported, not refused") {
  CoreRun run = EvaluatedRun();
  const EvalReportEvent a = Report(run, 0, std::nan(""), 10);
  REQUIRE(run.Do(a).status.ok());
  REQUIRE(run.Do(a).status.ok());
  REQUIRE(run.Do(Report(run, 1, 20.0, 20)).status.ok());
  REQUIRE(std::isnan(run.state.last_eval->loss));
}

TEST_CASE("a departed evaluator's slice goes to one that holds the version") {
  CoreRun run = EvaluatedRun();
  run.Join("c");  // No lease: it does not hold version 0's window.
  run.Do(LeaveEvent{"b", "SIGTERM"});
  REQUIRE(run.LastFact<EvalReassigned>()->worker == "a");
  REQUIRE(run.LastFact<EvalReassigned>()->slice == 1);
  REQUIRE(run.View("a").evals.size() == 2);
  // Its late report no longer counts.
  REQUIRE(run.Do(EvalReportEvent{"b", 0, 1, 20.0, 20}).status.code() ==
          Code::kFailedPrecondition);
}

TEST_CASE("a lost worker's slice completes with one in the midst of a window") {
  CoreRun run = EvaluatedRun();
  REQUIRE(run.Do(Report(run, 0, 40.0, 10)).status.ok());
  run.Pass(absl::Seconds(29), {"a"});
  REQUIRE(run.Count<EvalReassigned>() == 0);  // Suspect is not lost.
  run.Pass(absl::Seconds(1), {"a"});
  REQUIRE(run.LastFact<EvalReassigned>()->worker == "a");
  REQUIRE(run.LastFact<EvalReassigned>()->reason == "b is lost");
  REQUIRE(run.Do(Report(run, 1, 20.0, 20)).status.ok());
  REQUIRE(run.state.last_eval->version == 0);
}

TEST_CASE("a worker that carries steps evaluates like the others") {
  CoreRun run = EvaluatedRun();
  run.policy.deadline = absl::Seconds(20);
  FinishRound(run);
  run.Deliver("a");
  run.Pass(absl::Seconds(20), {"a", "b"});
  run.Fold();
  REQUIRE(run.open_round().leases.at("b").carried_tokens > 0);
  REQUIRE(run.state.eval->version == 2);
  REQUIRE(run.View("b").evals.size() == 1);
  REQUIRE(run.Do(Report(run, 0, 1.0, 10)).status.ok());
  REQUIRE(run.Do(Report(run, 1, 1.0, 10)).status.ok());
  REQUIRE(run.state.last_eval->version == 2);
}

TEST_CASE("evaluations come every eval.every versions") {
  CoreRun run;
  run.policy.eval_every = 2;
  run.policy.eval_windows = 4;
  run.Join("a");
  run.Join("b");
  REQUIRE(run.LastFact<EvalOpened>()->version == 0);
  FinishRound(run);
  REQUIRE(run.Count<EvalOpened>() == 1);
  FinishRound(run);
  REQUIRE(run.LastFact<EvalOpened>()->version == 2);
}

TEST_CASE("the run ends when its last version is evaluated") {
  CoreRun run;
  run.policy.train_tokens = 2000;
  run.policy.eval_every = 10;
  run.policy.eval_windows = 4;
  run.Join("a");
  run.Join("b");
  run.Deliver("a");
  run.Deliver("b");
  const Decision fold = run.Fold();
  REQUIRE_FALSE(Has<RoundOpened>(fold));
  REQUIRE(Has<EvalOpened>(fold));
  REQUIRE(run.state.eval->version == 1);
  REQUIRE_FALSE(run.state.finished);

  SECTION("complete") {
    run.Do(Report(run, 0, 1.0, 10));
    REQUIRE_FALSE(run.state.finished);
    REQUIRE(Has<RunFinished>(run.Do(Report(run, 1, 1.0, 10))));
    REQUIRE(run.state.last_eval->version == 1);
  }
  SECTION("abandoned when everybody is gone for the lease") {
    run.Do(LeaveEvent{"a", ""});
    run.Do(LeaveEvent{"b", ""});
    REQUIRE_FALSE(run.state.finished);
    run.Pass(absl::Seconds(30));
    REQUIRE(run.LastFact<EvalAbandoned>()->reason == "no worker is left");
    REQUIRE(run.state.finished);
  }
  SECTION("abandoned when it does not complete") {
    for (int i = 0; i < 601 && !run.state.finished; ++i) {
      run.Pass(absl::Seconds(1), {"a", "b"});
    }
    REQUIRE(run.state.finished);
    REQUIRE(run.Count<EvalAbandoned>() == 2);
  }
}

TEST_CASE("a run whose workers left before its last evaluation still ends") {
  CoreRun run = EvaluatedRun();
  run.policy.train_tokens = 2000;
  run.Deliver("a");
  run.Deliver("b");
  run.Do(LeaveEvent{"a", ""});
  run.Do(LeaveEvent{"b", ""});
  run.Fold();
  REQUIRE_FALSE(run.state.finished);
  run.Pass(absl::Seconds(30));
  REQUIRE(run.state.finished);
}

TEST_CASE("a crash between a version and its evaluation is caught up") {
  CoreRun run = EvaluatedRun();
  run.Deliver("a");
  run.Deliver("b");
  // Only the first fact of the fold's decision reached the disk.
  State cut = run.state;
  FoldDoneEvent done;
  done.published.round = 1;
  done.published.version = 1;
  const Decision fold = Decide(run.policy, run.state, run.soft, done, run.now);
  REQUIRE(fold.facts.size() > 1);
  REQUIRE(Evolve(cut, fold.facts[0]).ok());
  run.state = cut;
  run.soft = StartSoft(cut, run.now);
  run.Tick();
  REQUIRE(run.open());
  REQUIRE(run.state.eval->version == 1);
}

}  // namespace
}  // namespace diloco

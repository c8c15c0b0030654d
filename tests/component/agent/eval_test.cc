// Evaluations of theta by the workers, and how their results arrive.

#include "tests/component/agent/agent_run.h"

namespace diloco {
namespace {

// Theta's loss as the fake trainers tell it, of the last version.
double RunAndEvaluate(Fixture& fixture, Worker& a, Worker& b) {
  fixture.StartCoordinator();
  a.Start();
  b.Start();
  a.Join();
  b.Join();
  INFO(a.status.ToString() << " " << b.status.ToString());
  REQUIRE(a.status.ok());
  REQUIRE(b.status.ok());
  const StatusReport status = fixture.Status();
  REQUIRE(status.phase == RunPhase::kFinished);
  REQUIRE(status.eval.has_value());
  REQUIRE(status.eval->version == 6);
  return status.eval->loss;
}

TEST_CASE("a result that is not taken at once is sent again, not computed") {
  Fixture calm(2);
  calm.EvaluateEveryVersion(4);
  Worker calm_a(calm, 0), calm_b(calm, 1);
  const double expected = RunAndEvaluate(calm, calm_a, calm_b);

  const auto code = GENERATE(absl::StatusCode::kUnavailable,
                             absl::StatusCode::kDeadlineExceeded,
                             absl::StatusCode::kResourceExhausted);
  Fixture fixture(2);
  fixture.EvaluateEveryVersion(4);
  Worker a(fixture, 0), b(fixture, 1);
  std::atomic<int> evaluations{0};
  // The last version, whose slices must be in before the run is finished.
  a.options.after_apply = [&](uint64_t version, Trainer&) {
    if (version != 6) return;
    a.port.FailEvals(code, 3);
    evaluations = 0;
  };
  a.prepare = [&](FakeTrainer& trainer) {
    trainer.CountEvaluations(&evaluations);
  };
  REQUIRE(RunAndEvaluate(fixture, a, b) == expected);
  // Two windows, two a batch.
  REQUIRE(evaluations == 1);
}

TEST_CASE("evaluations change nothing in training") {
  Fixture calm(2);
  const Digest expected = RunToEnd(calm, 2);
  Fixture fixture(2);
  fixture.EvaluateEveryVersion(4);
  Worker a(fixture, 0), b(fixture, 1);
  RunAndEvaluate(fixture, a, b);
  REQUIRE(fixture.Status().fragments[0].digest == expected);
}

}  // namespace
}  // namespace diloco

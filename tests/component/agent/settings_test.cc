// Settings that change in mid-run, as a worker takes them over.
#include "tests/component/agent/agent_run.h"

namespace diloco {
namespace {

using StepLog = std::vector<std::pair<double, int64_t>>;

// Steps of a whole window each have one rate and one batch.
void RequireWholeWindows(const StepLog& log) {
  REQUIRE(log.size() % 5 == 0);
  for (size_t i = 0; i < log.size(); ++i) REQUIRE(log[i] == log[i - i % 5]);
}

TEST_CASE("a changed rate and batch begin with a window, for every worker") {
  Fixture fixture(2);
  fixture.MakeLong();
  fixture.StartCoordinator();
  StepLog steps[2];
  Worker a(fixture, 0), b(fixture, 1);
  a.prepare = [&](FakeTrainer& trainer) { trainer.LogSteps(&steps[0]); };
  b.prepare = [&](FakeTrainer& trainer) { trainer.LogSteps(&steps[1]); };
  a.Start();
  b.Start();
  fixture.AwaitVersion(2);
  const uint64_t from = fixture.Set(
      {{"train.optimizer.lr", "0.01"}, {"train.batch_tokens", "16"}});
  REQUIRE(from >= 3);
  fixture.AwaitVersion(from + 1);
  fixture.Admin(StopEvent{});
  a.Join();
  b.Join();
  for (const StepLog& log : steps) {
    RequireWholeWindows(log);
    const size_t before = 5 * (from - 1);
    REQUIRE(log.size() > before);
    for (size_t i = 0; i < log.size(); ++i) {
      INFO("step " << i << " of " << log.size() << ", from " << before);
      REQUIRE(log[i].first == (i < before ? 0.05 : 0.01));
      REQUIRE(log[i].second == (i < before ? 2 : 4));
    }
  }
}

TEST_CASE(
    "a worker that joins later, and one that comes back, get the newest") {
  Fixture fixture(1);
  fixture.MakeLong();
  fixture.StartCoordinator();
  StepLog first, second, late;
  {
    Worker a(fixture, 0);
    a.prepare = [&](FakeTrainer& trainer) { trainer.LogSteps(&first); };
    a.Start();
    fixture.AwaitVersion(2);
    a.stop = true;
    a.Join();
    REQUIRE(a.status.ok());
  }
  const uint64_t from = fixture.Set({{"train.optimizer.lr", "0.01"}});
  fixture.StopCoordinator();
  fixture.StartCoordinator();
  Worker a(fixture, 0), b(fixture, 1);
  a.prepare = [&](FakeTrainer& trainer) { trainer.LogSteps(&second); };
  b.prepare = [&](FakeTrainer& trainer) { trainer.LogSteps(&late); };
  a.Start();
  fixture.AwaitVersion(from);
  b.Start();
  fixture.Await([&] {
    const StatusReport status = fixture.Status();
    return status.workers.size() == 2 && status.workers[1].rounds_folded > 1;
  });
  fixture.Admin(StopEvent{});
  a.Join();
  b.Join();
  REQUIRE(a.status.ok());
  REQUIRE(b.status.ok());
  for (const auto& step : first) REQUIRE(step.first == 0.05);
  REQUIRE(second.back().first == 0.01);
  for (const auto& step : late) REQUIRE(step.first == 0.01);
}

}  // namespace
}  // namespace diloco

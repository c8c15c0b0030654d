// A journal that cannot be written for a while: what the run and its callers
// see of it, and that it can be stopped.
#include <future>
#include <thread>

#include "absl/strings/match.h"
#include "common/base/clock.h"
#include "tests/component/coordinator/test_run.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

template <typename F>
int CountFacts(TestRun& run) {
  std::promise<std::vector<EventReport>> events;
  run.coordinator->GetEvents(
      0, absl::ZeroDuration(), [&](absl::StatusOr<EventsOutcome> outcome) {
        events.set_value(outcome.ok() ? outcome->events
                                      : std::vector<EventReport>());
      });
  int count = 0;
  for (const EventReport& event : events.get_future().get()) {
    count += std::holds_alternative<F>(event.fact);
  }
  return count;
}

TEST_CASE("C7.1 while the disk is full the run stays on its round") {
  TestRun run(2);
  run.options.policy.deadline = absl::Seconds(60);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  REQUIRE(run.Status().fragments[0].open_round == 1);

  run.fs.set_space(run.fs.bytes_used());
  std::promise<absl::Status> paused;
  run.coordinator->Admin(
      PauseEvent{true, "test"},
      [&](const absl::Status& status) { paused.set_value(status); });
  CHECK(absl::StrContains(run.AwaitTrouble(), "waits for disk space"));
  // Past lease and deadline; nobody's beat is taken meanwhile.
  run.clock.Advance(absl::Minutes(5));

  const StatusReport stalled = run.Status();
  CHECK(absl::StrContains(stalled.not_ready, "waits for disk space"));
  CHECK(stalled.phase == RunPhase::kRunning);
  CHECK(stalled.fragments[0].open_round == 1);
  CHECK(stalled.workers.size() == 2);

  run.fs.set_space(UINT64_MAX);
  REQUIRE(paused.get_future().get().ok());
  // A round trip through the thread that decides: it has ticked.
  REQUIRE(run.View("a").ok());
  const StatusReport after = run.Status();
  CHECK(after.not_ready.empty());
  CHECK(after.phase == RunPhase::kPaused);
  CHECK(after.fragments[0].open_round == 1);
  CHECK(after.fragments[0].open_for < absl::Seconds(1));
  for (const WorkerReport& worker : after.workers) {
    CHECK(worker.membership == "active");
  }
  CHECK(CountFacts<WorkerDeparted>(run) == 0);
  CHECK(CountFacts<RoundClosed>(run) == 0);
}

TEST_CASE("a beat that waited for the disk counts before silence does") {
  TestRun run(2);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  // Both are silent for almost the lease; then the disk is full.
  run.clock.Advance(absl::Seconds(29));
  run.fs.set_space(run.fs.bytes_used());
  run.coordinator->Admin(PauseEvent{true, "test"}, [](const absl::Status&) {});
  REQUIRE_FALSE(run.AwaitTrouble().empty());
  std::promise<void> heard;
  run.coordinator->Beat(run.sessions["a"], Fencing(), WorkerProgress(),
                        [&](absl::StatusOr<uint64_t>) { heard.set_value(); });
  run.clock.Advance(absl::Seconds(10));
  run.fs.set_space(UINT64_MAX);
  heard.get_future().get();
  run.clock.Advance(absl::Seconds(1));
  REQUIRE(run.View("a").ok());
  REQUIRE(run.View("a").ok());
  const StatusReport after = run.Status();
  CHECK(after.workers[0].membership == "active");
  CHECK(after.workers[1].membership == "lost");
}

TEST_CASE("a stop while the disk is full ends, and the next start goes on") {
  // How much a round takes; the last of it is the fold's fact.
  uint64_t space = 0;
  {
    TestRun run(1);
    REQUIRE(run.Start().ok());
    run.JoinAll();
    run.Pause(true);
    run.DeliverAll();
    REQUIRE(run.AwaitVersion(1).ok());
    space = run.fs.bytes_used() - 1;
  }
  TestRun run(1);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  run.Pause(true);
  run.fs.set_space(space);
  run.DeliverAll();
  CHECK_FALSE(run.AwaitTrouble("the journal waits").empty());
  std::future<void> stopped =
      std::async(std::launch::async, [&] { run.coordinator->Stop(); });
  const bool ended =
      stopped.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
  run.fs.set_space(UINT64_MAX);  // Or the test would never end.
  CHECK(ended);
  stopped.get();
  run.End();
  REQUIRE(run.Start().ok());
  run.JoinAll();
  REQUIRE(run.AwaitVersion(1).ok());
}

TEST_CASE("a round opens only when its files have room, and then by itself") {
  TestRun run(2);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  run.DeliverAll();
  REQUIRE(run.AwaitVersion(1).ok());
  REQUIRE(run.Status().fragments[0].open_round == 2);
  // Room for round 2 and not for another one.
  const uint64_t update = run.NextUpdate("a").bytes.size();
  run.fs.set_space(run.fs.bytes_used() + 7 * update);
  run.DeliverAll();
  REQUIRE(run.AwaitVersion(2).ok());
  CHECK(absl::StrContains(run.AwaitTrouble(), "waiting for disk space"));
  const StatusReport waiting = run.Status();
  CHECK(waiting.fragments[0].open_round == 0);
  CHECK(absl::StrContains(waiting.phase_reason, "the files of a round need"));
  run.fs.set_space(UINT64_MAX);
  run.clock.Advance(absl::Seconds(1));
  while (run.Status().fragments[0].open_round != 3) std::this_thread::yield();
  run.DeliverAll();
  CHECK(run.AwaitVersion(3).ok());
  CHECK(run.coordinator->NotReady().empty());
}

}  // namespace
}  // namespace diloco

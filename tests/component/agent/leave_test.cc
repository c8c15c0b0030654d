// Workers that are asked to stop, or drained: what is done is handed in.

#include <future>

#include "tests/component/agent/agent_run.h"

namespace diloco {
namespace {

// Rounds of this many steps: a worker asked after some of them is in
// mid-window.
constexpr uint32_t kSteps = 40;

struct LongRounds : Fixture {
  explicit LongRounds(int workers) : Fixture(workers) {
    policy.interval = kSteps;
    policy.deadline = absl::Hours(1);
    MakeLong();
  }

  std::vector<RoundClosed> Closed() {
    std::promise<EventsOutcome> answer;
    slot.Get()->GetEvents(0, absl::ZeroDuration(),
                          [&](absl::StatusOr<EventsOutcome> outcome) {
                            answer.set_value(outcome.value());
                          });
    std::vector<RoundClosed> closed;
    for (const EventReport& event : answer.get_future().get().events) {
      const auto* fact = std::get_if<RoundClosed>(&event.fact);
      if (fact != nullptr) closed.push_back(*fact);
    }
    return closed;
  }
};

// Asks the worker to stop once it has made `at` steps.
struct StopAt {
  StopAt(Worker& worker, uint64_t at) {
    worker.prepare = [this](FakeTrainer& trainer) {
      trainer.CountSteps(&steps);
    };
    worker.options.stop_requested = [this, at, &worker] {
      return worker.stop || steps >= at;
    };
  }
  std::atomic<uint64_t> steps{0};
};

CheckpointHeader KeptBy(Fixture& fixture, const Worker& worker) {
  CheckpointStore store(FileSystem::Posix(),
                        fixture.dir.File(worker.options.worker));
  const absl::StatusOr<std::optional<Checkpoint>> kept = store.LoadNewest();
  REQUIRE(kept.ok());
  REQUIRE(kept->has_value());
  return (*kept)->header;
}

TEST_CASE("C5.4 a stopped worker hands in its steps and no round waits") {
  LongRounds fixture(2);
  fixture.StartCoordinator();
  Worker stays(fixture, 0), goes(fixture, 1);
  StopAt stop(goes, 7);
  stays.Start();
  goes.Start();
  goes.Join();
  INFO(goes.status);
  REQUIRE(goes.status.ok());
  fixture.AwaitVersion(2);
  const std::vector<RoundClosed> closed = fixture.Closed();
  REQUIRE(closed.size() >= 2);
  REQUIRE(closed[0].members.size() == 2);
  CHECK(closed[0].members[0].weight == 8 * kSteps);
  CHECK(closed[0].members[1].weight == 8 * stop.steps);
  CHECK(stop.steps < kSteps);
  CHECK(closed[1].members.size() == 1);
  const StatusReport status = fixture.Status();
  CHECK(status.workers[1].membership == "left");
  CHECK(KeptBy(fixture, goes).local.fragments[0].window.delivered);
}

TEST_CASE("C5.4 a stopped worker that comes back goes on, counted once") {
  LongRounds fixture(2);
  fixture.StartCoordinator();
  Worker stays(fixture, 0);
  stays.Start();
  uint64_t first = 0;
  {
    Worker goes(fixture, 1);
    StopAt stop(goes, 7);
    goes.Start();
    goes.Join();
    REQUIRE(goes.status.ok());
    first = stop.steps;
  }
  Worker back(fixture, 1);
  back.Start();
  fixture.Await([&] { return fixture.Status().workers[1].rounds_folded >= 3; });
  fixture.Admin(StopEvent{});
  back.Join();
  stays.Join();
  INFO(back.status);
  REQUIRE(back.status.ok());
  CHECK_FALSE(back.port.last_join().fresh);
  // Its tokens: what it handed in, then whole windows.
  for (const UpdateOffer& offer : back.port.offers()) {
    CHECK(offer.steps == kSteps);
    CHECK(offer.tokens == 8 * offer.steps);
  }
  const StatusReport status = fixture.Status();
  CHECK(status.workers[1].tokens_folded ==
        8 * (first + kSteps * (status.workers[1].rounds_folded - 1)));
  // Its steps go on from those of the process before.
  CHECK(status.workers[1].progress.inner_steps >= first + 2 * kSteps);
}

TEST_CASE("C5.4 a worker whose window fits in drain_timeout finishes it") {
  LongRounds fixture(1);
  fixture.StartCoordinator();
  Worker worker(fixture, 0);
  // In the second window: the first one has shown how long they take.
  StopAt stop(worker, kSteps + 3);
  worker.Start();
  worker.Join();
  REQUIRE(worker.status.ok());
  REQUIRE(worker.port.offers().size() == 2);
  CHECK(worker.port.offers()[1].steps == kSteps);
}

TEST_CASE("C5.4 a drained worker hands in its steps and leaves") {
  LongRounds fixture(2);
  fixture.StartCoordinator();
  Worker stays(fixture, 0), goes(fixture, 1);
  std::atomic<uint64_t> steps{0};
  goes.prepare = [&](FakeTrainer& trainer) { trainer.CountSteps(&steps); };
  // After its fifth step it waits for the drain.
  goes.options.checkpoint_requested = [&] {
    while (steps == 5 && !goes.port.knows_of_drain()) std::this_thread::yield();
    return false;
  };
  stays.Start();
  goes.Start();
  fixture.Await([&] { return steps == 5; });
  fixture.Admin(DrainEvent{"worker-1"});
  goes.Join();
  REQUIRE(goes.status.ok());
  fixture.AwaitVersion(1);
  const std::vector<RoundClosed> closed = fixture.Closed();
  REQUIRE(closed[0].members.size() == 2);
  CHECK(closed[0].members[1].weight == 8 * steps);
  CHECK(steps < kSteps);
  CHECK(fixture.Status().workers[1].membership == "left");
}

TEST_CASE("C5.4 a worker that nobody answers keeps its window and ends") {
  LongRounds calm(1);
  calm.policy.train_tokens = calm.settings.train.tokens = 8 * kSteps * 2;
  LongRounds fixture(1);
  fixture.policy.train_tokens = fixture.settings.train.tokens = 8 * kSteps * 2;
  const auto run = [](LongRounds& run, bool stopped) {
    run.StartCoordinator();
    if (stopped) {
      Worker first(run, 0);
      std::atomic<uint64_t> steps{0};
      first.prepare = [&](FakeTrainer& trainer) { trainer.CountSteps(&steps); };
      first.options.stop_requested = [&] {
        if (steps >= 7) first.port.set_cut(true);
        return steps >= 7;
      };
      first.Start();
      first.Join();
      REQUIRE(first.status.ok());
      REQUIRE(first.port.offers().empty());
      const CheckpointHeader kept = KeptBy(run, first);
      REQUIRE(kept.local.fragments[0].window.steps_done >= 7);
      REQUIRE(kept.local.fragments[0].window.steps_done < kSteps);
      REQUIRE_FALSE(kept.spooled[0].has_value());
    }
    Worker worker(run, 0);
    worker.Start();
    worker.Join();
    INFO(worker.status);
    REQUIRE(worker.status.ok());
    REQUIRE(run.Status().fragments[0].version == 2);
    return run.Status().fragments[0].digest;
  };
  // Bit for bit as if it had not been stopped.
  CHECK(run(fixture, true) == run(calm, false));
}

TEST_CASE("C5.4 an upload that stands still is kept, and handed in later") {
  // The other worker's update is late as well, or it is not.
  const bool round_closes = GENERATE(false, true);
  // The encoded update is there on the return, or it is not: its steps are in
  // the checkpoint all the same.
  const bool file_lost = GENERATE(false, true);
  CAPTURE(round_closes, file_lost);
  LongRounds fixture(2);
  fixture.StartCoordinator();
  Worker stays(fixture, 0);
  if (!round_closes) stays.port.set_uploads_cut(true);
  uint64_t first = 0;
  {
    Worker goes(fixture, 1);
    StopAt stop(goes, 7);
    goes.port.set_uploads_cut(true);
    goes.options.drain_timeout = absl::Milliseconds(500);
    goes.Start();
    stays.Start();
    goes.Join();
    INFO(goes.status);
    REQUIRE(goes.status.ok());
    first = stop.steps;
    const CheckpointHeader kept = KeptBy(fixture, goes);
    REQUIRE(kept.spooled[0].has_value());
    CHECK(kept.spooled[0]->steps == first);
    CHECK_FALSE(kept.local.fragments[0].window.delivered);
    // It has left all the same.
    CHECK(fixture.Status().workers[1].membership == "left");
    if (file_lost) {
      REQUIRE(std::filesystem::remove(
          JoinPath(goes.options.scratch, kept.spooled[0]->file)));
    }
  }
  if (round_closes) {
    fixture.AwaitVersion(1);
    CHECK(fixture.Closed()[0].members.size() == 1);
  }
  Worker back(fixture, 1);
  back.Start();
  fixture.Await([&] { return !back.port.offers().empty(); });
  stays.port.set_uploads_cut(false);
  fixture.Await([&] { return fixture.Status().workers[1].rounds_folded >= 2; });
  fixture.Admin(StopEvent{});
  back.Join();
  stays.Join();
  INFO(back.status);
  REQUIRE(back.status.ok());
  const std::vector<UpdateOffer> offers = back.port.offers();
  CHECK(offers[0].steps == first);
  if (round_closes) {
    // Late: its steps are carried into the next window.
    CHECK(offers[1].steps == first + kSteps);
    CHECK(offers[1].tokens == 8 * (first + kSteps));
  } else {
    // In time, under the key it was taken for.
    const std::vector<RoundClosed> closed = fixture.Closed();
    CHECK(closed[0].members.size() == 2);
    CHECK(closed[0].members[1].weight == 8 * first);
    CHECK(offers[1].steps == kSteps);
  }
  const StatusReport status = fixture.Status();
  CHECK(status.workers[1].tokens_folded ==
        8 * (first + kSteps * (status.workers[1].rounds_folded -
                               (round_closes ? 0 : 1))));
}

}  // namespace
}  // namespace diloco

// Joining, what is said at it, and sessions that end.

#include "coordinator/offline/lineage.h"
#include "coordinator/offline/run_archive.h"
#include "tests/component/agent/agent_run.h"

namespace diloco {
namespace {

TEST_CASE("C1.5 a worker tells what its shard has when it joins") {
  Fixture fixture(1);
  fixture.StartCoordinator();
  Worker worker(fixture, 0);
  worker.Start();
  worker.Join();
  REQUIRE(worker.status.ok());
  REQUIRE(worker.port.last_join().data_tokens == 1000);
  REQUIRE(worker.port.last_join().max_token == 49);
}

TEST_CASE("a worker beats while it prepares") {
  Fixture fixture(1);
  fixture.StartCoordinator();
  Worker worker(fixture, 0);
  std::atomic<bool> go{false};
  worker.prepare = [&](FakeTrainer&) {
    while (!go) std::this_thread::yield();
  };
  worker.Start();
  fixture.Await([&] {
    const StatusReport status = fixture.Status();
    return !status.workers.empty() &&
           status.workers[0].progress.state == "starting";
  });
  go = true;
  worker.Join();
  REQUIRE(worker.status.ok());
}

TEST_CASE("C6.2 a fresh scratch waits for the lease of the one before") {
  ManualClock clock;
  Fixture fixture(1);
  fixture.clock = &clock;
  fixture.MakeLong();
  fixture.StartCoordinator();
  Worker first(fixture, 0);
  first.Start();
  fixture.AwaitVersion(1);
  // A crash: it neither leaves nor beats.
  first.port.set_cut(true);
  first.stop = true;
  first.Join();
  Worker second(fixture, 0, "fresh");
  second.Start();
  fixture.Await([&] { return second.port.joins() >= 2; });
  REQUIRE_FALSE(second.ended);
  const uint64_t version = fixture.Status().fragments[0].version;
  clock.Advance(fixture.policy.lease);
  fixture.AwaitVersion(version + 1);
  fixture.Admin(StopEvent{});
  second.Join();
  INFO(second.status.ToString());
  REQUIRE(second.status.ok());
}

TEST_CASE(
    "C1.8 a worker without its scratch goes on in its data; the ledger "
    "closes") {
  Fixture fixture(1);
  fixture.MakeLong();
  fixture.StartCoordinator();
  for (const char* scratch : {"first", "second"}) {
    Worker worker(fixture, 0, scratch);
    worker.Start();
    fixture.AwaitVersion(fixture.Status().fragments[0].version + 3);
    worker.stop = true;
    worker.Join();
    REQUIRE(worker.status.ok());
  }
  fixture.StopCoordinator();
  const auto archive =
      RunArchive::Read(FileSystem::Posix(), fixture.dir.File("state"));
  REQUIRE(archive.ok());
  const State& state = (*archive)->state();
  const LedgerBalance balance =
      (*archive)->ledger().Balance(0, state.fragments[0]);
  CHECK(balance.closes());
  CHECK(balance.unplaced == 0);
  CHECK(balance.again == 0);
  CHECK(balance.tokens.at(WindowFate::kFolded) ==
        state.fragments[0].folded_tokens);
  CHECK(balance.tokens.at(WindowFate::kOverwritten) == 0);
}

TEST_CASE("C6.2 a name that stays held is given up") {
  Fixture fixture(1);
  fixture.MakeLong();
  fixture.StartCoordinator();
  Worker first(fixture, 0);
  first.Start();
  fixture.AwaitVersion(1);
  Worker second(fixture, 0, "fresh");
  second.options.connect_timeout = absl::Milliseconds(100);
  second.Start();
  second.Join();
  REQUIRE(absl::IsAlreadyExists(second.status));
  REQUIRE_FALSE(first.ended);
}

TEST_CASE("nobody answers: the worker says whom it tried and for how long") {
  Fixture fixture(1);
  Worker worker(fixture, 0);
  worker.options.connect_timeout = absl::Milliseconds(300);
  worker.Start();
  worker.Join();
  REQUIRE(absl::IsUnavailable(worker.status));
  INFO(worker.status.ToString());
  REQUIRE(worker.status.message().find("300ms") != std::string::npos);
  REQUIRE(worker.status.message().find("address") != std::string::npos);
}

TEST_CASE("a session that the coordinator does not know is replaced once") {
  Fixture fixture(1);
  fixture.MakeLong();
  fixture.StartCoordinator();
  Worker worker(fixture, 0);
  worker.Start();
  fixture.AwaitVersion(1);
  worker.port.ForgetSession();
  fixture.Await([&] { return worker.port.joins() == 2; });
  const uint64_t version = fixture.Status().fragments[0].version;
  fixture.AwaitVersion(version + 1);
  REQUIRE_FALSE(worker.ended);
  worker.port.ForgetSession();
  worker.Join();
  REQUIRE(absl::IsUnauthenticated(worker.status));
}

TEST_CASE("totals of a beat are of the worker's life, not of the process") {
  Fixture fixture(1);
  fixture.MakeLong();
  fixture.StartCoordinator();
  {
    Worker worker(fixture, 0);
    worker.Start();
    fixture.AwaitVersion(3);
    worker.stop = true;
    worker.Join();
  }
  CheckpointStore store(FileSystem::Posix(), fixture.dir.File("worker-0"));
  const uint64_t before = (*store.LoadNewest())->header.inner_steps;
  REQUIRE(before >= 15);
  const uint64_t version = fixture.Status().fragments[0].version;
  Worker again(fixture, 0);
  again.Start();
  fixture.AwaitVersion(version + 2);
  again.stop = true;
  again.Join();
  REQUIRE(again.status.ok());
  const WorkerProgress after = fixture.Status().workers[0].progress;
  REQUIRE(after.inner_steps > before);
  REQUIRE(after.tokens == 8 * after.inner_steps);
}

TEST_CASE("a worker of a lineage that has ended pulls theta and goes on") {
  Fixture fixture(1);
  fixture.MakeLong();
  fixture.StartCoordinator();
  Worker worker(fixture, 0);
  worker.Start();
  fixture.AwaitVersion(5);
  // With its process, or with a new one on its scratch directory.
  const bool restarted = GENERATE(false, true);
  if (restarted) {
    worker.port.set_cut(true);
    worker.stop = true;
    worker.Join();
  }
  fixture.StopCoordinator();
  const std::string state = fixture.dir.File("state");
  const auto rolled =
      RollBack(FileSystem::Posix(), state, 4, std::string(16, 'L'));
  INFO(rolled.status());
  REQUIRE(rolled.ok());
  fixture.StartCoordinator();
  Worker again(fixture, 0);
  if (restarted) again.Start();
  fixture.AwaitVersion(6);
  fixture.Admin(StopEvent{});
  Worker& last = restarted ? again : worker;
  last.Join();
  INFO(last.status);
  REQUIRE(last.status.ok());
  // Its digests were compared at each version; none was wrong.
  CHECK(fixture.Status().workers[0].rounds_folded >= 7);
}

}  // namespace
}  // namespace diloco

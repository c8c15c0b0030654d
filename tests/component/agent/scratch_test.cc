// The worker's scratch directory: checkpoints on demand, and a full disk.

#include "tests/component/agent/agent_run.h"
#include "tests/support/fault_file_system.h"

namespace diloco {
namespace {

TEST_CASE("a checkpoint that was asked for is written in mid-window") {
  Fixture fixture(1);
  fixture.StartCoordinator();
  Worker worker(fixture, 0);
  std::atomic<uint64_t> steps{0};
  std::atomic<bool> asked{false};
  // After step 3, of 5.
  worker.options.checkpoint_requested = [&] {
    return steps == 3 && !asked.exchange(true);
  };
  worker.prepare = [&](FakeTrainer& trainer) { trainer.CountSteps(&steps); };
  // Nobody is there to hand anything in to.
  worker.options.stop_requested = [&] {
    if (steps >= 4) worker.port.set_cut(true);
    return steps >= 4;
  };
  worker.Start();
  worker.Join();
  REQUIRE(worker.status.ok());
  // The second is the one at the end.
  const std::string scratch = fixture.dir.File("worker-0");
  REQUIRE(std::filesystem::remove(scratch + "/checkpoint-000002.ckpt"));
  CheckpointStore store(FileSystem::Posix(), scratch);
  const absl::StatusOr<std::optional<Checkpoint>> asked_for =
      store.LoadNewest();
  REQUIRE(asked_for.ok());
  REQUIRE(asked_for->has_value());
  REQUIRE((*asked_for)->header.sequence == 1);
  REQUIRE((*asked_for)->header.local.fragments[0].window.steps_done == 3);
}

TEST_CASE("a full scratch directory ends the worker, which names the path") {
  FaultFileSystem disk;
  Fixture fixture(1);
  fixture.StartCoordinator();
  Worker worker(fixture, 0);
  worker.options.fs = &disk;
  worker.port.set_file_system(&disk);
  worker.options.after_apply = [&](uint64_t version, Trainer&) {
    if (version == 2) disk.set_space(disk.bytes_used() + 10);
  };
  worker.Start();
  worker.Join();
  INFO(worker.status.ToString());
  REQUIRE(absl::IsResourceExhausted(worker.status));
  REQUIRE(worker.status.message().find(worker.options.scratch) !=
          std::string::npos);
  // Room again: it goes on where it was.
  disk.set_space(UINT64_MAX);
  Worker again(fixture, 0);
  again.options.fs = &disk;
  again.port.set_file_system(&disk);
  again.Start();
  again.Join();
  INFO(again.status.ToString());
  REQUIRE(again.status.ok());
  REQUIRE(fixture.Status().fragments[0].version == 6);
}

TEST_CASE("only a checkpoint that is on disk counts as written") {
  FaultFileSystem disk;
  REQUIRE(disk.CreateDirs("scratch").ok());
  CheckpointStore store(&disk, "scratch");
  BackgroundWriter writer(&store, Threads::Real());
  CheckpointHeader header;
  header.lineage = std::string(16, 'l');
  header.local.fragments.emplace_back().version = 1;
  header.inner_steps = 5;
  REQUIRE(writer.Write(writer.Reserve(), header, {}).ok());
  CHECK(writer.durable_steps() == 5);
  header.inner_steps = 8;
  disk.set_full("scratch");
  writer.Start(header, {});
  CHECK_FALSE(writer.Wait().ok());
  CHECK(writer.durable_steps() == 5);
  CHECK_FALSE(writer.Write(writer.Reserve(), header, {}).ok());
  CHECK(writer.durable_steps() == 5);
  disk.set_full("");
  writer.Start(header, {});
  REQUIRE(writer.Wait().ok());
  CHECK(writer.durable_steps() == 8);
  CHECK(store.LoadNewest()->value().header.inner_steps == 8);
}

}  // namespace
}  // namespace diloco

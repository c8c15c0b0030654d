// Whole runs in one process: real coordinator, real agents, real files, fake
// trainer, no network.

#include <filesystem>
#include <future>

#include "tests/component/agent/agent_run.h"

namespace diloco {
namespace {

TEST_CASE("two runs with the same seed and workers give the same theta") {
  Fixture first(2), second(2);
  REQUIRE(RunToEnd(first, 2) == RunToEnd(second, 2));
}

TEST_CASE("C6.1 lost replies of uploads change nothing") {
  Fixture calm(2);
  const Digest expected = RunToEnd(calm, 2);
  Fixture fixture(2);
  fixture.StartCoordinator();
  Worker a(fixture, 0), b(fixture, 1);
  a.port.set_lost_replies(3);
  b.port.set_lost_replies(2);
  a.Start();
  b.Start();
  a.Join();
  b.Join();
  REQUIRE(a.status.ok());
  REQUIRE(b.status.ok());
  REQUIRE(fixture.Status().fragments[0].digest == expected);
}

TEST_CASE("C6.1 a receipt lost with its round is asked for before carrying") {
  Fixture calm(2);
  const Digest expected = RunToEnd(calm, 2);
  Fixture fixture(2);
  fixture.StartCoordinator();
  Worker a(fixture, 0), b(fixture, 1);
  a.port.CutUploadsAfterCommit();
  a.Start();
  b.Start();
  // The round closes with a's update in it; a, still sending, sees the version
  // and stops, without having heard what became of its update.
  fixture.Await([&] { return a.port.cancelled_uploads() == 1; });
  REQUIRE(fixture.Status().fragments[0].version >= 1);
  a.port.set_uploads_cut(false);
  a.Join();
  b.Join();
  REQUIRE(a.status.ok());
  REQUIRE(b.status.ok());
  for (const UpdateOffer& offer : a.port.offers()) {
    REQUIRE(offer.tokens == 40);
  }
  REQUIRE(fixture.Status().fragments[0].digest == expected);
}

TEST_CASE("a coordinator restarted at every version gives the same theta") {
  Fixture calm(2);
  const Digest expected = RunToEnd(calm, 2);
  Fixture fixture(2);
  fixture.StartCoordinator();
  Worker a(fixture, 0), b(fixture, 1);
  a.Start();
  b.Start();
  RestartCoordinatorAtEachVersion(fixture);
  a.Join();
  b.Join();
  REQUIRE(a.status.ok());
  REQUIRE(b.status.ok());
  REQUIRE(fixture.Status().fragments[0].digest == expected);
}

TEST_CASE("C7.3 workers restarted in mid-run go on bit for bit") {
  Fixture calm(2);
  const Digest expected = RunToEnd(calm, 2);
  Fixture fixture(2);
  fixture.StartCoordinator();
  auto a = std::make_unique<Worker>(fixture, 0);
  Worker b(fixture, 1);
  a->Start();
  b.Start();
  for (uint64_t version = 1; version <= 4; ++version) {
    fixture.AwaitVersion(version);
    // Cut off first, so that the stop is a crash to the coordinator: a worker
    // that leaves is not waited for.
    a->port.set_cut(true);
    a->stop = true;
    a->Join();
    a = std::make_unique<Worker>(fixture, 0);
    a->Start();
  }
  a->Join();
  b.Join();
  REQUIRE(a->status.ok());
  REQUIRE(fixture.Status().fragments[0].digest == expected);
}

TEST_CASE("a flipped bit in a copy of theta is named and mended") {
  Fixture fixture(2);
  fixture.StartCoordinator();
  Worker a(fixture, 0), b(fixture, 1);
  a.options.after_apply = [](uint64_t version, Trainer& trainer) {
    if (version == 2) {
      static_cast<FakeTrainer&>(trainer).anchor()[0] += 1.0f;
    }
  };
  a.Start();
  b.Start();
  a.Join();
  b.Join();
  REQUIRE(a.status.ok());
  REQUIRE(a.metrics.Text().find("diloco_worker_digest_mismatches_total 1") !=
          std::string::npos);
  REQUIRE(fixture.metrics.Text().find(
              "diloco_coordinator_digest_mismatches_total 1") !=
          std::string::npos);
  REQUIRE(fixture.Status().fragments[0].version == 6);
}

TEST_CASE("C6.5 a copy of another base is dropped before it is trained on") {
  Fixture fixture(1);
  fixture.MakeLong();
  fixture.StartCoordinator();
  {
    Worker worker(fixture, 0);
    worker.Start();
    fixture.AwaitVersion(2);
    fixture.Admin(PauseEvent{true, "test"});
    fixture.Await(
        [&] { return fixture.Status().fragments[0].open_round == 0; });
    worker.stop = true;
    worker.Join();
  }
  // Its checkpoint is of the right version with other values in it.
  CheckpointStore store(FileSystem::Posix(), fixture.dir.File("worker-0"));
  absl::StatusOr<std::optional<Checkpoint>> checkpoint = store.LoadNewest();
  REQUIRE(checkpoint.ok());
  for (NamedBuffer& buffer : (*checkpoint)->buffers) {
    if (buffer.first == "anchor") buffer.second[3] += 0.5f;
  }
  REQUIRE(store.Write((*checkpoint)->header, (*checkpoint)->buffers).ok());
  Worker again(fixture, 0);
  again.Start();
  // While no round is open.
  fixture.Await([&] {
    return again.metrics.Text().find(
               "diloco_worker_digest_mismatches_total 1") != std::string::npos;
  });
  REQUIRE(again.port.offers().empty());
  const uint64_t version = fixture.Status().fragments[0].version;
  fixture.Admin(PauseEvent{false, ""});
  fixture.AwaitVersion(version + 2);
  fixture.Admin(StopEvent{});
  again.Join();
  INFO(again.status.ToString());
  REQUIRE(again.status.ok());
  REQUIRE(again.metrics.Text().find(
              "diloco_worker_digest_mismatches_total 1") != std::string::npos);
}

TEST_CASE("C6.6 a worker whose loss is NaN ends; the run goes on without it") {
  Fixture fixture(2);
  fixture.StartCoordinator();
  Worker good(fixture, 0), bad(fixture, 1);
  bad.prepare = [](FakeTrainer& trainer) { trainer.PoisonAtStep(8); };
  good.Start();
  bad.Start();
  fixture.AwaitVersion(4);
  bad.Join();
  INFO(bad.status.ToString());
  CHECK(bad.status.message().find("loss is nan") != std::string::npos);
  CHECK(fixture.Status().workers[0].rounds_folded >= 4);
  CHECK(fixture.Status().workers[1].rounds_folded == 1);
}

TEST_CASE("C6.6 an infinite value is refused, named and kept as evidence") {
  Fixture fixture(2);
  fixture.StartCoordinator();
  Worker good(fixture, 0), bad(fixture, 1);
  bad.prepare = [](FakeTrainer& trainer) { trainer.SpikeAtStep(9, 1e8f); };
  good.Start();
  bad.Start();
  fixture.AwaitVersion(2);
  // Its steps 6 to 10 were round 2, which closed without it.
  std::promise<EventsOutcome> answer;
  fixture.slot.Get()->GetEvents(0, absl::ZeroDuration(),
                                [&](absl::StatusOr<EventsOutcome> outcome) {
                                  answer.set_value(outcome.value());
                                });
  std::vector<UpdateRefused> refused;
  for (const EventReport& event : answer.get_future().get().events) {
    const auto* fact = std::get_if<UpdateRefused>(&event.fact);
    if (fact != nullptr) refused.push_back(*fact);
  }
  REQUIRE(refused.size() >= 1);
  INFO(refused[0].reason);
  CHECK(refused[0].worker == "worker-1");
  CHECK(refused[0].round == 2);
  CHECK(refused[0].reason.find("model.embed_tokens.weight[0]") !=
        std::string::npos);
  CHECK_FALSE(fixture.UpdatesAre("refused", 0));
  int kept = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           fixture.dir.File("state/spool/f00-r000002"))) {
    kept += entry.path().extension() == ".refused";
  }
  CHECK(kept == 1);
}

TEST_CASE("C8.3 a skipped step is counted and the update has the others") {
  Fixture fixture(1);
  fixture.StartCoordinator();
  Worker worker(fixture, 0);
  worker.prepare = [](FakeTrainer& trainer) { trainer.SkipSteps(7, 7); };
  worker.Start();
  worker.Join();
  REQUIRE(worker.status.ok());
  REQUIRE(worker.metrics.Text().find(
              "diloco_worker_skipped_steps_total{reason=\"nonfinite\"} 1") !=
          std::string::npos);
  REQUIRE(fixture.UpdatesAre("accepted", 6));
}

TEST_CASE("C8.3 too many skipped steps end the worker, which sends nothing") {
  Fixture fixture(1);
  fixture.settings.train.max_skipped_steps = 3;
  fixture.StartCoordinator();
  Worker worker(fixture, 0);
  worker.prepare = [](FakeTrainer& trainer) { trainer.SkipSteps(7, 1000); };
  worker.Start();
  worker.Join();
  INFO(worker.status.ToString());
  REQUIRE(absl::IsInternal(worker.status));
  for (const char* word : {"3 steps in a row", "step 9", "loss nan"}) {
    REQUIRE(worker.status.message().find(word) != std::string::npos);
  }
  // Round 1 only; and it has left, so nobody waits for it.
  REQUIRE(worker.port.offers().size() == 1);
  const StatusReport status = fixture.Status();
  REQUIRE(status.workers[0].membership == "left");
  REQUIRE(status.fragments[0].version == 1);
}

TEST_CASE("C6.2 a copied scratch directory is refused, the original goes on") {
  Fixture fixture(1);
  fixture.MakeLong();
  fixture.StartCoordinator();
  Worker original(fixture, 0);
  original.Start();
  fixture.AwaitVersion(1);
  original.stop = true;
  original.Join();
  std::filesystem::copy(fixture.dir.File("worker-0"), fixture.dir.File("copy"),
                        std::filesystem::copy_options::recursive);
  // The original joins twice more, so the copy's session is two steps old.
  for (int i = 0; i < 2; ++i) {
    Worker again(fixture, 0);
    const uint64_t before = fixture.Status().fragments[0].version;
    again.Start();
    fixture.Await(
        [&] { return fixture.Status().fragments[0].version > before; });
    again.stop = true;
    again.Join();
    REQUIRE(again.status.ok());
  }
  Worker copy(fixture, 0, "copy");
  copy.Start();
  copy.Join();
  REQUIRE_FALSE(copy.status.ok());
  INFO(copy.status.ToString());
  REQUIRE(copy.status.message().find("is a copy") != std::string::npos);
}

TEST_CASE("C6.3 a silent worker is not waited for beyond the deadline") {
  Fixture fixture(3);
  fixture.policy.deadline = absl::Seconds(1);
  fixture.policy.suspect_after = absl::Milliseconds(300);
  fixture.StartCoordinator();
  Worker a(fixture, 0), b(fixture, 1), c(fixture, 2);
  a.Start();
  b.Start();
  c.Start();
  fixture.AwaitVersion(1);
  c.port.set_cut(true);
  fixture.AwaitVersion(3);
  const uint64_t folded = fixture.Status().workers[2].rounds_folded;
  c.port.set_cut(false);
  fixture.Await(
      [&] { return fixture.Status().workers[2].rounds_folded > folded; });
}

}  // namespace
}  // namespace diloco

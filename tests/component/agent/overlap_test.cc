// Runs in which training goes on between the take of an update and the merge of
// its result.

#include "common/tensor/part_file.h"
#include "coordinator/aggregate/fold_kernel.h"
#include "tests/component/agent/agent_run.h"
#include "tests/support/fault_file_system.h"

namespace diloco {
namespace {

// Merged two steps after the take, half of the local value kept.
struct Overlapping : Fixture {
  explicit Overlapping(int workers) : Fixture(workers) {
    settings.overlap = 2;
    settings.mix = 0.5;
    settings.codec_up = policy.codec_up = Codec::kFp32;
  }
};

// Theta after the run of one worker, by the formulas alone.
Digest Reference(const Fixture& fixture) {
  FakeTrainer trainer(fixture.layout, 0.5f);
  const auto n = static_cast<size_t>(fixture.layout.elements);
  std::vector<float> theta(n), momentum(n), delta(n), change(n);
  for (size_t i = 0; i < n; ++i) theta[i] = static_cast<float>(i % 7) * 0.01f;
  REQUIRE(trainer.Load(0, theta).ok());
  CountingData data(0);
  OuterSettings outer;
  outer.lr = static_cast<float>(fixture.policy.outer_lr);
  outer.momentum = static_cast<float>(fixture.policy.outer_momentum);
  outer.nesterov = true;
  const auto overlap = static_cast<int>(fixture.settings.overlap);
  for (int t = 1; t <= 30; ++t) {
    const absl::StatusOr<Batch> batch =
        data.Read(static_cast<uint64_t>(2 * (t - 1)), 2);
    REQUIRE(trainer.Step(*batch, fixture.settings.train.lr).ok());
    if (t % 5 == 0) {
      REQUIRE(trainer.ReadLocal(0, absl::MakeSpan(delta)).ok());
      for (size_t i = 0; i < n; ++i) delta[i] = theta[i] - delta[i];
    }
    const bool last = t == 30;
    if (!last && (t < 5 + overlap || (t - overlap) % 5 != 0)) continue;
    const FoldInput input{
        Codec::kFp32,
        absl::MakeConstSpan(reinterpret_cast<const char*>(delta.data()),
                            n * sizeof(float)),
        1};
    FoldTile({input}, outer, absl::MakeSpan(momentum), absl::MakeSpan(change));
    ApplyChange(change, absl::MakeSpan(theta));
    const auto mix = static_cast<float>(last ? 0 : fixture.settings.mix);
    REQUIRE(trainer.Adopt(0, theta, Trainer::MergeMode::kMix, mix).ok());
  }
  return DigestOfValues(theta);
}

TEST_CASE("exact: theta is that of the formulas") {
  Overlapping fixture(1);
  fixture.settings.overlap = GENERATE(0u, 1u, 2u, 4u);
  fixture.settings.mix = GENERATE(0.0, 0.5, 0.25);
  const Digest expected = Reference(fixture);
  REQUIRE(RunToEnd(fixture, 1) == expected);
}

TEST_CASE(
    "exact: lost replies and restarts of the coordinator change nothing") {
  Overlapping calm(2);
  const Digest expected = RunToEnd(calm, 2);
  Overlapping fixture(2);
  fixture.StartCoordinator();
  Worker a(fixture, 0), b(fixture, 1);
  a.port.set_lost_replies(3);
  b.port.set_lost_replies(2);
  a.Start();
  b.Start();
  RestartCoordinatorAtEachVersion(fixture);
  a.Join();
  b.Join();
  REQUIRE(a.status.ok());
  REQUIRE(b.status.ok());
  REQUIRE(fixture.Status().fragments[0].digest == expected);
}

TEST_CASE("C7.3 a worker restarted in mid-overlap goes on bit for bit") {
  Overlapping calm(2);
  const Digest expected = RunToEnd(calm, 2);
  // After the take of step 10, before and at the merge, and in mid-window.
  const int stop_before = GENERATE(11, 12, 13, 14);
  Overlapping fixture(2);
  RunWithCrashBefore(stop_before, fixture);
  REQUIRE(fixture.Status().fragments[0].digest == expected);
}

// Its first update finds no room, but only once so many steps were trained.
class FullOnceDisk final : public FaultFileSystem {
 public:
  FullOnceDisk(const std::atomic<uint64_t>* steps, uint64_t after)
      : steps_(steps), after_(after) {}
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWrite(
      const std::string& path) override {
    if (path.find("update-") != std::string::npos && !failed_.exchange(true)) {
      while (*steps_ < after_) std::this_thread::yield();
      return absl::ResourceExhaustedError("the test's disk is full");
    }
    return FaultFileSystem::OpenForWrite(path);
  }

 private:
  const std::atomic<uint64_t>* const steps_;
  const uint64_t after_;
  std::atomic<bool> failed_{false};
};

TEST_CASE(
    "an update that cannot be written is taken again with what followed") {
  Overlapping fixture(1);
  fixture.StartCoordinator();
  std::atomic<uint64_t> steps{0};
  FullOnceDisk disk(&steps, 6);
  const auto use = [&](Worker& worker) {
    worker.options.fs = &disk;
    worker.port.set_file_system(&disk);
    worker.prepare = [&](FakeTrainer& trainer) { trainer.CountSteps(&steps); };
    worker.Start();
    worker.Join();
  };
  Worker full(fixture, 0, "scratch");
  use(full);
  REQUIRE(absl::IsResourceExhausted(full.status));
  REQUIRE(full.port.offers().empty());
  const uint64_t trained = steps;
  REQUIRE(trained > 5);
  Worker again(fixture, 0, "scratch");
  use(again);
  REQUIRE(again.status.ok());
  REQUIRE(again.port.offers()[0].steps == trained);
  REQUIRE(fixture.Status().phase == RunPhase::kFinished);
}

TEST_CASE("slip: a run ends with all of its tokens folded") {
  Overlapping fixture(2);
  fixture.settings.merge = MergeMode::kSlip;
  RunToEnd(fixture, 2);
}

TEST_CASE("how long training stood still is measured for each merge") {
  Overlapping fixture(1);
  fixture.StartCoordinator();
  Worker worker(fixture, 0);
  worker.Start();
  worker.Join();
  REQUIRE(worker.status.ok());
  REQUIRE(worker.metrics.Text().find("diloco_worker_stall_seconds_count 6\n") !=
          std::string::npos);
}

}  // namespace
}  // namespace diloco

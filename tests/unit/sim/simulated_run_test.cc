// Simulated runs with a trainer of known gradients: what `diloco-worker
// simulate` does but for LibTorch and the command line.
#include "worker/simulate/simulated_run.h"

#include <algorithm>

#include "common/model/model_config.h"
#include "tests/support/agent/fake_trainer.h"
#include "tests/support/catch.h"
#include "tests/support/fault_file_system.h"

namespace diloco::sim {
namespace {

constexpr uint32_t kSteps = 10;
constexpr uint64_t kBatchTokens = 8;

class Data final : public BatchSource {
 public:
  explicit Data(int worker) : worker_(static_cast<uint64_t>(worker)) {}
  uint64_t tokens() const override { return 1000; }
  uint32_t max_token() const override { return 49; }
  std::string Describe() const override { return "data of a test"; }
  absl::Status Prepare(const RunSettings&) override { return absl::OkStatus(); }
  absl::StatusOr<Batch> Read(uint64_t cursor, int64_t windows) override {
    Batch batch;
    batch.windows = windows;
    batch.ids_per_window = 5;
    batch.ids.resize(static_cast<size_t>(windows * batch.ids_per_window),
                     static_cast<int32_t>((11 * worker_ + 7 * cursor) % 50));
    return batch;
  }

 private:
  const uint64_t worker_;
};

SimulationOptions Options(FaultFileSystem* fs, int workers, uint64_t rounds) {
  SimulationOptions options;
  options.fs = options.run.fs = fs;
  options.scratch = "scratch";
  RunSettings& settings = options.run.settings;
  settings.model.layers = 1;
  settings.model.hidden = 8;
  settings.model.heads = 2;
  settings.model.kv_heads = 1;
  settings.model.head_dim = 4;
  settings.model.ffn = 8;
  settings.model.vocab = 50;
  settings.model.max_positions = 4;
  settings.seed = 3;
  settings.train.seq_len = 4;
  settings.train.batch_tokens = kBatchTokens;
  settings.train.schedule = ScheduleShape::kConstant;
  settings.train.lr = 0.05;
  settings.join_probe = true;
  options.run.layout = *BuildLayout(ModelTensors(settings.model), 1);
  settings.layout_digest = options.run.layout.ComputeDigest();
  Policy& policy = options.run.policy;
  policy.interval = kSteps;
  policy.batch_tokens = kBatchTokens;
  policy.train_tokens =
      rounds * kSteps * kBatchTokens * static_cast<uint64_t>(workers);
  policy.wait_for = static_cast<uint32_t>(workers);
  policy.deadline = absl::Minutes(10);
  settings.train.tokens = policy.train_tokens;
  options.run.run = settings.run = "test";
  options.run.state_dir = "state";
  options.run.initial_theta = [](absl::Span<float> theta) {
    std::fill(theta.begin(), theta.end(), 0.25f);
    return absl::OkStatus();
  };
  options.make_trainer =
      [](const RunSettings&,
         const Layout& layout) -> absl::StatusOr<std::unique_ptr<Trainer>> {
    return std::make_unique<FakeTrainer>(layout, 0.75f);
  };
  for (int i = 0; i < workers; ++i) {
    SimulatedWorker worker;
    worker.name = "w" + std::to_string(i + 1);
    worker.open_data = [i]() -> absl::StatusOr<std::unique_ptr<BatchSource>> {
      return std::make_unique<Data>(i);
    };
    options.workers.push_back(std::move(worker));
  }
  return options;
}

const WorkerProgress& ProgressOf(const SimulationReport& report,
                                 const std::string& name) {
  for (const WorkerReport& worker : report.status.workers) {
    if (worker.name == name) return worker.progress;
  }
  FAIL("no worker " << name);
  static const WorkerProgress none;
  return none;
}

std::vector<std::string> Digests(const SimulationReport& report) {
  std::vector<std::string> digests;
  for (const RoundRow& row : report.rounds) {
    digests.push_back(row.digest.ToHex());
  }
  return digests;
}

TEST_CASE("a simulated run takes the time that its steps take") {
  FaultFileSystem fs;
  SimulationOptions options = Options(&fs, 2, 3);
  options.workers[1].speed = 0.5;
  options.step_time = absl::Seconds(2);
  const auto report = Simulate(std::move(options));
  REQUIRE(report.status().message() == "");
  REQUIRE(report->rounds.size() == 3);
  REQUIRE(report->rounds.back().version == 3);
  REQUIRE(report->rounds.back().updates == 2);
  REQUIRE(report->status.folded_tokens == 3 * 2 * kSteps * kBatchTokens);
  const WorkerProgress& fast = ProgressOf(*report, "w1");
  const WorkerProgress& slow = ProgressOf(*report, "w2");
  REQUIRE(fast.train_seconds == Approx(3 * kSteps * 2.0));
  REQUIRE(slow.train_seconds == Approx(3 * kSteps * 4.0));
  REQUIRE(fast.wait_seconds >= 3 * kSteps * 2.0);
  REQUIRE(fast.transfer_seconds == 0);
  REQUIRE(fast.bytes_sent > 0);
  // The probe's three steps, and then the slow worker's windows.
  REQUIRE(report->took >= absl::Seconds(3 * kSteps * 4));
  REQUIRE(report->took <= absl::Seconds((3 * kSteps + 4) * 4));
}

TEST_CASE("a line's rate and latency are the time that files take") {
  FaultFileSystem fs;
  SimulationOptions options = Options(&fs, 2, 2);
  options.workers[1].line = {1e4, absl::Milliseconds(50)};
  const auto report = Simulate(std::move(options));
  REQUIRE(report.status().message() == "");
  const WorkerProgress& near = ProgressOf(*report, "w1");
  const WorkerProgress& far = ProgressOf(*report, "w2");
  REQUIRE(near.transfer_seconds == 0);
  // Up and down are one after the other here. Begin, finish, and each file
  // there and back: the latency.
  const double files =
      static_cast<double>(far.bytes_sent + far.bytes_received) * 8 / 1e4;
  REQUIRE(far.transfer_seconds >= files);
  REQUIRE(far.transfer_seconds <= files + 3.0);
}

TEST_CASE("all workers' files pass the coordinator's line") {
  FaultFileSystem fs;
  SimulationOptions options = Options(&fs, 2, 2);
  options.coordinator.bits_per_second = 1e4;
  const auto report = Simulate(std::move(options));
  REQUIRE(report.status().message() == "");
  double bytes = 0;
  double seconds = 0;
  for (const char* name : {"w1", "w2"}) {
    const WorkerProgress& worker = ProgressOf(*report, name);
    bytes += static_cast<double>(worker.bytes_sent + worker.bytes_received);
    seconds += worker.transfer_seconds;
  }
  // One has to wait for the other, but where they are not at it at the same
  // time: the first to have theta trains and uploads first.
  const double undisturbed = bytes * 8 / 1e4;
  REQUIRE(seconds > 1.25 * undisturbed);
  REQUIRE(seconds <= 1.5 * undisturbed);
}

TEST_CASE("a killed worker comes back, and the same run is the same run") {
  std::vector<std::string> first;
  for (int i = 0; i < 2; ++i) {
    FaultFileSystem fs;
    SimulationOptions options = Options(&fs, 3, 4);
    options.kills = {{"w2", 2}};
    options.checkpoint_every = absl::Seconds(3);
    options.back_after = absl::Seconds(4);
    std::vector<std::string> notes;
    options.on_note = [&](const std::string& note) { notes.push_back(note); };
    const auto report = Simulate(std::move(options));
    REQUIRE(report.status().message() == "");
    REQUIRE(notes ==
            std::vector<std::string>{"w2 is killed in round 2, back in 4s"});
    REQUIRE(report->status.folded_tokens == 4 * 3 * kSteps * kBatchTokens);
    if (i == 0) {
      first = Digests(*report);
    } else {
      REQUIRE(Digests(*report) == first);
    }
  }
  // It went on from its checkpoint and was waited for: nothing is different.
  FaultFileSystem fs;
  const auto undisturbed = Simulate(Options(&fs, 3, 4));
  REQUIRE(undisturbed.status().message() == "");
  REQUIRE(Digests(*undisturbed) == first);
}

TEST_CASE("a run that could never end is refused") {
  FaultFileSystem fs;
  SimulationOptions options = Options(&fs, 2, 1);
  options.run.policy.wait_for = 3;
  REQUIRE(absl::IsInvalidArgument(Simulate(std::move(options)).status()));
  options = Options(&fs, 2, 1);
  options.kills = {{"w9", 1}};
  REQUIRE(absl::IsInvalidArgument(Simulate(std::move(options)).status()));
  options = Options(&fs, 2, 1);
  options.workers[1].name = "w1";
  REQUIRE(absl::IsInvalidArgument(Simulate(std::move(options)).status()));
}

TEST_CASE("what ends a worker, and a stop, end the simulation") {
  FaultFileSystem fs;
  SimulationOptions options = Options(&fs, 2, 2);
  options.workers[1].open_data =
      []() -> absl::StatusOr<std::unique_ptr<BatchSource>> {
    return absl::NotFoundError("no such shard");
  };
  REQUIRE(Simulate(std::move(options)).status().message() ==
          "w2: no such shard");
  FaultFileSystem other;
  options = Options(&other, 2, 50);
  int polls = 0;
  options.stop_requested = [&] { return ++polls > 500; };
  REQUIRE(absl::IsCancelled(Simulate(std::move(options)).status()));
}

}  // namespace
}  // namespace diloco::sim

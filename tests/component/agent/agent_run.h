// A run in one process for tests: a real coordinator on real files, and agents
// with a fake trainer, each on a thread of its own. No network, no torch.
//
//   Fixture fixture(2);
//   fixture.StartCoordinator();
//   Worker a(fixture, 0), b(fixture, 1);
//   a.Start();
#ifndef TESTS_COMPONENT_AGENT_AGENT_RUN_H_
#define TESTS_COMPONENT_AGENT_AGENT_RUN_H_

#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "tests/support/agent/fake_trainer.h"
#include "tests/support/agent/memory_port.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "worker/runtime/agent.h"

namespace diloco {

inline constexpr absl::Duration kPatience = absl::Seconds(60);

class CountingData final : public BatchSource {
 public:
  explicit CountingData(int first) : first_(first) {}
  uint64_t tokens() const override { return 1000; }
  uint32_t max_token() const override { return 49; }
  std::string Describe() const override { return "counting data"; }
  absl::Status Prepare(const RunSettings&) override {
    DILOCO_CHECK(!prepared_) << "a source is prepared once";
    prepared_ = true;
    return absl::OkStatus();
  }
  absl::StatusOr<Batch> Read(uint64_t cursor, int64_t windows) override {
    Batch batch;
    batch.windows = windows;
    batch.ids_per_window = 5;
    for (int64_t i = 0; i < windows * 5; ++i) {
      batch.ids.push_back(static_cast<int32_t>(
          (first_ + cursor + static_cast<uint64_t>(i)) % 50));
    }
    return batch;
  }

 private:
  const uint64_t first_;
  bool prepared_ = false;
};

inline ModelConfig SmallModel() {
  ModelConfig model;
  model.layers = 1;
  model.hidden = 8;
  model.heads = 2;
  model.kv_heads = 1;
  model.head_dim = 4;
  model.ffn = 16;
  model.vocab = 50;
  model.max_positions = 4;
  return model;
}

// One run's directories and settings; the coordinator can be restarted.
struct Fixture {
  explicit Fixture(int workers) {
    settings.run = "test";
    settings.seed = 1;
    settings.model = SmallModel();
    settings.train.seq_len = 4;
    settings.train.batch_tokens = 8;
    settings.train.tokens = static_cast<uint64_t>(8 * 5 * 6 * workers);
    settings.train.schedule = ScheduleShape::kConstant;
    settings.train.lr = 0.05;
    settings.join_ramp_steps = 0;
    layout = *BuildLayout(ModelTensors(settings.model), 1);
    settings.layout_digest = layout.ComputeDigest();
    policy.train_tokens = settings.train.tokens;
    policy.batch_tokens = settings.train.batch_tokens;
    policy.interval = 5;
    policy.wait_for = static_cast<uint32_t>(workers);
    policy.deadline = absl::Seconds(60);
    policy.outer_lr = 0.7;
    policy.outer_momentum = 0.5;
  }

  // More rounds than any test waits for.
  void MakeLong() {
    settings.train.tokens *= 50;
    policy.train_tokens = settings.train.tokens;
  }

  CoordinatorOptions MakeOptions() {
    CoordinatorOptions options;
    options.run = "test";
    options.policy = policy;
    options.settings = settings;
    options.layout = layout;
    options.state_dir = dir.File("state");
    options.image_every = 2;
    options.initial_theta = [](absl::Span<float> theta) {
      for (size_t i = 0; i < theta.size(); ++i) {
        theta[i] = static_cast<float>(i % 7) * 0.01f;
      }
      return absl::OkStatus();
    };
    options.metrics = &metrics;
    options.clock = clock;
    options.eval_shard = eval_shard;
    // Inner rate and batch may change, in the canonical spelling.
    options.settings_text =
        absl::StrCat("train.batch_tokens = ", settings.train.batch_tokens,
                     "\ntrain.optimizer.lr = ", settings.train.lr, "\n");
    options.settings_digest = Sha256(options.settings_text);
    options.changes.changeable = {{"train.batch_tokens", false},
                                  {"train.optimizer.lr", false}};
    options.changes.with =
        [policy = policy, settings = settings](
            const SettingValues& values) -> absl::StatusOr<SettingsView> {
      SettingsView view{0, policy, settings, ""};
      if (values.count("train.optimizer.lr") != 0) {
        view.run.train.lr = std::stod(values.at("train.optimizer.lr"));
      }
      if (values.count("train.batch_tokens") != 0) {
        view.policy.batch_tokens = view.run.train.batch_tokens =
            std::stoull(values.at("train.batch_tokens"));
      }
      view.text =
          absl::StrCat("train.batch_tokens = ", view.run.train.batch_tokens,
                       "\ntrain.optimizer.lr = ", view.run.train.lr, "\n");
      return view;
    };
    return options;
  }

  void StartCoordinator() {
    absl::StatusOr<std::unique_ptr<Coordinator>> started =
        Coordinator::Start(MakeOptions());
    INFO(started.status().ToString());
    REQUIRE(started.ok());
    slot.Set(std::shared_ptr<Coordinator>(std::move(*started)));
  }

  void StopCoordinator() {
    const std::shared_ptr<Coordinator> old = slot.Get();
    slot.Set(nullptr);
    old->Stop();
    // Agents may hold it for a moment; the lock goes with the last of them.
    while (old.use_count() > 1) std::this_thread::yield();
  }

  StatusReport Status() {
    std::atomic<bool> ready{false};
    StatusReport out;
    slot.Get()->GetStatus([&](absl::StatusOr<StatusReport> report) {
      if (report.ok()) out = *report;
      ready = true;
    });
    while (!ready) std::this_thread::yield();
    return out;
  }

  void Admin(Event event) {
    std::atomic<bool> ready{false};
    absl::Status outcome;
    slot.Get()->Admin(std::move(event), [&](const absl::Status& status) {
      outcome = status;
      ready = true;
    });
    while (!ready) std::this_thread::yield();
    REQUIRE(outcome.ok());
  }

  // The first round under the change.
  uint64_t Set(const SettingValues& values) {
    std::atomic<bool> ready{false};
    absl::StatusOr<SettingsChanged> outcome;
    slot.Get()->ChangeSettings({values, 0, "test", ""},
                               [&](absl::StatusOr<SettingsChanged> changed) {
                                 outcome = std::move(changed);
                                 ready = true;
                               });
    while (!ready) std::this_thread::yield();
    INFO(outcome.status().ToString());
    REQUIRE(outcome.ok());
    return outcome->from_round;
  }

  // Every version is evaluated, over `windows` windows.
  void EvaluateEveryVersion(uint64_t windows) {
    policy.eval_every = 1;
    policy.eval_windows = windows;
    eval_shard = dir.File("valid.bin");
    // uint16 ids, all 0.
    REQUIRE(WriteFileAtomic(
                FileSystem::Posix(), eval_shard,
                std::string(2 * (windows * settings.train.seq_len + 1), '\0'))
                .ok());
  }

  // Updates that the coordinator judged with this result.
  bool UpdatesAre(const std::string& result, int count) {
    return metrics.Text().find(
               absl::StrCat("diloco_coordinator_updates_total{result=\"",
                            result, "\"} ", count, "\n")) != std::string::npos;
  }

  // Waits until `done`, printing the status when it takes too long.
  template <typename F>
  void Await(F done) {
    const Instant end = Clock::Real()->Now() + kPatience;
    while (!done()) {
      if (Clock::Real()->Now() > end) {
        const StatusReport status = Status();
        FAIL("timed out at version " << status.fragments[0].version << " round "
                                     << status.fragments[0].open_round << " "
                                     << status.phase_reason);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  void AwaitVersion(uint64_t version) {
    Await([&] { return Status().fragments[0].version >= version; });
  }

  TempDir dir;
  RunSettings settings;
  Layout layout;
  Policy policy;
  Clock* clock = Clock::Real();  // The coordinator's.
  std::string eval_shard;        // Empty: no evaluations.
  MetricsRegistry metrics;
  CoordinatorSlot slot;
};

// One worker in a thread of its own.
struct Worker {
  // `data`: which data and target; as the index by default.
  Worker(Fixture& fixture, int index, std::string scratch_name = "",
         int data = -1)
      : port(&fixture.slot) {
    if (data < 0) data = index;
    options.worker = absl::StrCat("worker-", index);
    options.scratch =
        fixture.dir.File(scratch_name.empty() ? options.worker : scratch_name);
    options.connect_timeout = kPatience;
    options.port = &port;
    options.metrics = &metrics;
    options.make_trainer =
        [this, data](
            const RunSettings&,
            const Layout& layout) -> absl::StatusOr<std::unique_ptr<Trainer>> {
      auto made = std::make_unique<FakeTrainer>(layout, 0.5f + 0.25f * data);
      if (prepare) prepare(*made);
      return made;
    };
    options.open_data =
        [data]() -> absl::StatusOr<std::unique_ptr<BatchSource>> {
      return std::make_unique<CountingData>(data * 11);
    };
    options.stop_requested = [this] { return stop.load(); };
  }
  void Start() {
    thread = std::thread([this] {
      Agent agent(options);
      status = agent.Run();
      ended = true;
    });
  }
  void Join() {
    if (thread.joinable()) thread.join();
  }
  ~Worker() {
    stop = true;
    Join();
  }

  MemoryPort port;
  MetricsRegistry metrics;
  AgentOptions options;
  std::function<void(FakeTrainer&)> prepare;
  std::atomic<bool> stop{false};
  std::atomic<bool> ended{false};
  absl::Status status;
  std::thread thread;
};

// A run of `workers`, until all of them have ended well.
inline void RunWorkers(Fixture& fixture, int workers) {
  fixture.StartCoordinator();
  std::vector<std::unique_ptr<Worker>> all;
  for (int i = 0; i < workers; ++i) {
    all.push_back(std::make_unique<Worker>(fixture, i));
    all.back()->Start();
  }
  for (const auto& worker : all) {
    worker->Join();
    INFO(worker->status.ToString());
    REQUIRE(worker->status.ok());
  }
}

inline void RestartCoordinatorAtEachVersion(Fixture& fixture) {
  for (uint64_t version = 1; version <= 5; ++version) {
    fixture.AwaitVersion(version);
    fixture.StopCoordinator();
    fixture.StartCoordinator();
  }
}

// A run of two workers, of which the first crashes before that step of its and
// comes back.
inline void RunWithCrashBefore(int stop_before, Fixture& fixture) {
  fixture.StartCoordinator();
  Worker b(fixture, 1);
  b.Start();
  {
    Worker a(fixture, 0);
    int steps = 0;
    a.prepare = [&](FakeTrainer& trainer) {
      trainer.SpendBeforeStep([&] {
        if (++steps != stop_before) return;
        // To the coordinator it is a crash.
        a.port.set_cut(true);
        a.stop = true;
      });
    };
    a.Start();
    a.Join();
    REQUIRE(a.status.ok());
  }
  Worker again(fixture, 0);
  again.Start();
  again.Join();
  b.Join();
  INFO(again.status.ToString());
  REQUIRE(again.status.ok());
  REQUIRE(b.status.ok());
}

inline Digest RunToEnd(Fixture& fixture, int workers) {
  RunWorkers(fixture, workers);
  const StatusReport status = fixture.Status();
  REQUIRE(status.phase == RunPhase::kFinished);
  // Why, not once more that.
  REQUIRE(status.phase_reason.rfind("train.tokens reached", 0) == 0);
  REQUIRE(status.fragments[0].version == 6);
  REQUIRE(status.folded_tokens == fixture.settings.train.tokens);
  return status.fragments[0].digest;
}

}  // namespace diloco

#endif  // TESTS_COMPONENT_AGENT_AGENT_RUN_H_

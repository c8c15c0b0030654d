#include "worker/run_command.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/logging.h"
#include "common/base/mutex.h"
#include "common/base/shutdown.h"
#include "common/base/status_macros.h"
#include "worker/config.h"
#include "worker/runtime/agent.h"
#include "worker/runtime/shard_source.h"
#include "worker/tools/flags.h"
#include "worker/train/torch_trainer.h"
#include "worker/transport/grpc_port.h"

namespace diloco {
namespace {

// Exit codes (README): what a supervisor should do about it.
constexpr int kExitRefused = 3;
constexpr int kExitIncompatible = 4;

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
      return kExitUsage;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kAlreadyExists:
      return kExitRefused;
    case absl::StatusCode::kFailedPrecondition:
      return kExitIncompatible;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
      return kExitTemporary;
    default:
      return kExitFailed;
  }
}

// Test hook: DILOCO_TEST_FLIP_BIT_AT_VERSION=N flips the lowest bit of one
// value of the copy of theta right after version N was applied.
std::function<void(uint64_t, Trainer&)> FlipBitHook() {
  const char* text = std::getenv("DILOCO_TEST_FLIP_BIT_AT_VERSION");
  uint64_t wanted = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &wanted)) return nullptr;
  return [wanted](uint64_t version, Trainer& trainer) {
    if (version != wanted) return;
    std::vector<float> values(
        static_cast<size_t>(trainer.layout().fragments[0].elements));
    if (!trainer.ReadAnchor(0, absl::MakeSpan(values)).ok()) return;
    uint32_t bits;
    static_assert(sizeof(bits) == sizeof(values[0]));
    std::memcpy(&bits, &values[0], sizeof(bits));
    bits ^= 1;
    std::memcpy(&values[0], &bits, sizeof(bits));
    (void)trainer.Load(0, values);
    DILOCO_LOG(WARNING) << "test hook: flipped a bit at version=" << version;
  };
}

// Neither a step nor a write that takes longer may hold the machine up: what
// lies in the scratch directory is whole at any moment.
void EndWhenDrainIsOver(const WorkerConfig& config) {
  std::thread([limit = config.drain_timeout, name = config.name] {
    while (!WaitForShutdown(absl::Hours(1))) continue;
    Clock* const clock = Clock::Real();
    const Instant end = clock->Now() + limit;
    Mutex mu;
    CondVar never;
    MutexLock lock(&mu);
    while (clock->Now() < end) never.WaitFor(&mu, end - clock->Now());
    DILOCO_LOG(WARNING) << "drain_timeout of " << absl::FormatDuration(limit)
                        << " is over; ends at once worker=" << name
                        << ": the next start goes on from the newest "
                           "checkpoint and hands in the update on disk";
    std::_Exit(kExitOk);
  }).detach();
}

// SIGUSR1 sets it, the agent takes it.
std::atomic<bool> checkpoint_requested{false};

absl::Status RunAgent(const WorkerConfig& config, bool take_over) {
  FileSystem* const fs = FileSystem::Posix();
  if (!fs->Exists(config.shard)) {
    return absl::NotFoundError(
        absl::StrCat(config.shard,
                     ": no such token file; `diloco-worker tokenize` makes "
                     "one, worker.yaml names it as data_dir and shard"));
  }
  MetricsRegistry metrics;
  std::unique_ptr<MetricsServer> http;
  if (!config.metrics.empty()) {
    ASSIGN_OR_RETURN(http, MetricsServer::Start(config.metrics, &metrics,
                                                [] { return std::string(); }));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<CoordinatorPort> port,
                   MakeGrpcPort({.coordinator = config.coordinator,
                                 .bulk_rate = config.bulk_max_rate,
                                 .metrics = &metrics}));
  AgentOptions options;
  options.worker = config.name;
  options.run = config.run;
  options.lineage = config.lineage;
  options.scratch = config.scratch;
  options.take_over = take_over;
  options.connect_timeout = config.connect_timeout;
  options.checkpoint_every = config.checkpoint_every;
  options.drain_timeout = config.drain_timeout;
  options.port = port.get();
  options.metrics = &metrics;
  const int threads =
      config.threads != 0
          ? static_cast<int>(config.threads)
          : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  options.make_trainer = [&config, threads](const RunSettings& settings,
                                            const Layout& layout) {
    return MakeTorchTrainer(
        settings.model, layout, settings.train,
        {.threads = threads,
         .micro_batch = static_cast<int64_t>(config.micro_batch),
         .device = config.device});
  };
  options.open_data =
      [fs, &config]() -> absl::StatusOr<std::unique_ptr<BatchSource>> {
    ASSIGN_OR_RETURN(TokenShard shard,
                     OpenTokenShard(fs, config.shard, TokenFormat::kUint16));
    return MakeShardSource(std::move(shard));
  };
  options.checkpoint_requested = [] {
    return checkpoint_requested.exchange(false);
  };
  options.stop_requested = [] { return ShutdownRequested(); };
  options.after_apply = FlipBitHook();
  Agent agent(std::move(options));
  return agent.Run();
}

}  // namespace

int RunWorker(int argc, char** argv) {
  std::string config_path;
  std::string log_level = "info";
  bool take_over = false;
  Flags flags("run", "Trains for a coordinator until its run ends.");
  flags.Text("config", &config_path,
             "the worker's file (see deploy/examples/worker.yaml)");
  flags.Text("log-level", &log_level, "debug, info, warning or error");
  flags.Switch("take-over", &take_over,
               "end another live process that has this worker's name");
  flags.Require("config");
  if (const std::optional<int> code = flags.Parse(argc, argv)) return *code;
  LogLevel level;
  if (!ParseLogLevel(log_level, &level)) {
    std::fprintf(stderr, "--log-level %s: one of debug, info, warning, error\n",
                 log_level.c_str());
    return kExitUsage;
  }
  SetLogLevel(level);
  SetLogComponent("worker");
  InstallShutdownHandler([] { checkpoint_requested = true; });
  const absl::StatusOr<LoadedWorker> loaded =
      LoadWorkerConfig(FileSystem::Posix(), config_path);
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n",
                 std::string(loaded.status().message()).c_str());
    return kExitUsage;
  }
  for (const std::string& warning : loaded->warnings) {
    DILOCO_LOG(WARNING) << warning;
  }
  EndWhenDrainIsOver(loaded->config);
  const absl::Status status = RunAgent(loaded->config, take_over);
  if (status.ok()) {
    DILOCO_LOG(INFO) << "done worker=" << loaded->config.name;
  } else {
    DILOCO_LOG(ERROR) << "ended worker=" << loaded->config.name << ": "
                      << status.message();
  }
  return ExitCodeOf(status);
}

}  // namespace diloco

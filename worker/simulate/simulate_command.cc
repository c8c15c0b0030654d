#include "worker/simulate/simulate_command.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/shutdown.h"
#include "common/base/status_macros.h"
#include "common/config/numbers.h"
#include "common/data/dataset_manifest.h"
#include "coordinator/config.h"
#include "coordinator/run_options.h"
#include "nlohmann/json.hpp"
#include "worker/limits.h"
#include "worker/runtime/shard_source.h"
#include "worker/simulate/mistaken_trainer.h"
#include "worker/simulate/simulated_run.h"
#include "worker/tools/flags.h"
#include "worker/train/torch_trainer.h"

namespace diloco {
namespace {

constexpr uint64_t kMaxWorkers = 1024;
constexpr char kRoundsFile[] = "rounds.json";
constexpr char kReportFile[] = "report.json";

struct Arguments {
  std::string config;
  std::string data;
  std::string out;
  std::string names;
  std::string speeds = "1";
  std::string links = "none";
  std::string coordinator_link = "none";
  std::string kill;
  std::string step_time = "1s";
  std::string back_after = "30s";
  std::string checkpoint_every = "5m";
  std::string device = "cpu";
  std::string log_level = "warning";
  uint64_t workers = 0;
  uint64_t threads = 1;
  uint64_t micro_batch = 0;
};

void DeclareFlags(Arguments& a, Flags& flags) {
  flags.Text("config", &a.config, "the run file");
  flags.Text(
      "data", &a.data,
      "shards of token ids, separated by commas, or a directory with "
      "dataset.json; the n-th worker has the n-th, then again the first");
  flags.Text("out", &a.out,
             "new directory for the run: state, scratch, rounds.json, "
             "report.json");
  flags.Count("workers", &a.workers, "0: as many as names, or as shards", 0,
              kMaxWorkers);
  flags.Text("names", &a.names,
             "of the workers, separated by commas; default w1, w2, ...");
  flags.Text("speeds", &a.speeds,
             "of the workers, such as 1,0.5; the last one counts for the rest");
  flags.Text("links", &a.links,
             "bits per second each way, such as 100M,10M/20ms with a one-way "
             "latency, or none: no time; the last one counts for the rest");
  flags.Text("coordinator-link", &a.coordinator_link,
             "likewise, without a latency: all workers share it");
  flags.Text("step-time", &a.step_time, "of an inner step at speed 1");
  flags.Text("kill", &a.kill,
             "workers to kill in the middle of a round, such as w3@5,w1@9");
  flags.Text("back-after", &a.back_after, "when a killed worker comes back");
  flags.Text("checkpoint-every", &a.checkpoint_every, "as of a worker's file");
  flags.Count("threads", &a.threads, "of LibTorch; 1 is reproducible", 1,
              kMaxThreads);
  flags.Count("micro-batch", &a.micro_batch, "windows at a time; 0: all");
  flags.Text("device", &a.device, "cpu or cuda");
  flags.Text("log-level", &a.log_level, "debug, info, warning or error");
  for (const char* name : {"config", "data", "out"}) flags.Require(name);
}

absl::Status FlagError(absl::string_view flag, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", what));
}

absl::StatusOr<absl::Duration> ParseTime(absl::string_view flag,
                                         const std::string& text) {
  absl::Duration value;
  const std::string error = ParseDurationWithUnit(text, &value);
  if (!error.empty()) return FlagError(flag, error);
  if (value <= absl::ZeroDuration()) return FlagError(flag, "must be positive");
  return value;
}

absl::StatusOr<sim::Line> ParseLine(absl::string_view flag,
                                    const std::string& text) {
  sim::Line line;
  if (text == "none") return line;
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  uint64_t rate = 0;
  std::string error = ParseCount(parts[0], &rate);
  if (error.empty() && rate == 0) error = "a line needs a rate";
  if (error.empty() && parts.size() == 2) {
    error = ParseDurationWithUnit(parts[1], &line.latency);
  }
  if (error.empty() && parts.size() > 2)
    error = "expected RATE or RATE/LATENCY";
  if (!error.empty()) return FlagError(flag, absl::StrCat(text, ": ", error));
  line.bits_per_second = static_cast<double>(rate);
  return line;
}

absl::StatusOr<std::vector<sim::PlannedKill>> ParseKills(
    const std::string& text) {
  std::vector<sim::PlannedKill> kills;
  if (text.empty()) return kills;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<std::string> sides = absl::StrSplit(part, '@');
    sim::PlannedKill kill;
    if (sides.size() != 2 || !absl::SimpleAtoi(sides[1], &kill.round)) {
      return FlagError("kill",
                       absl::StrCat("\"", part, "\" is not WORKER@ROUND"));
    }
    kill.worker = sides[0];
    kills.push_back(kill);
  }
  return kills;
}

// Paths of the training shards.
absl::StatusOr<std::vector<std::string>> FindShards(FileSystem* fs,
                                                    const std::string& data) {
  const std::string manifest_path = JoinPath(data, kManifestName);
  std::vector<std::string> shards = absl::StrSplit(data, ',');
  if (fs->Exists(manifest_path)) {
    shards.clear();
    ASSIGN_OR_RETURN(const DatasetManifest manifest,
                     ReadManifest(fs, manifest_path));
    for (const DatasetManifest::Shard& shard : manifest.shards) {
      if (shard.split == "train") shards.push_back(JoinPath(data, shard.file));
    }
    if (shards.empty()) {
      return absl::NotFoundError(
          absl::StrCat(manifest_path, " lists no training shard"));
    }
  }
  for (const std::string& shard : shards) {
    if (fs->Exists(shard)) continue;
    return FlagError("data", absl::StrCat(shard, " is not there"));
  }
  return shards;
}

// One value for each worker: the last of those given counts for the rest.
const std::string& At(const std::vector<std::string>& values, size_t i) {
  return values[std::min(i, values.size() - 1)];
}

absl::StatusOr<std::vector<sim::SimulatedWorker>> MakeWorkers(
    FileSystem* fs, const Arguments& a) {
  ASSIGN_OR_RETURN(const std::vector<std::string> shards,
                   FindShards(fs, a.data));
  std::vector<std::string> names;
  if (!a.names.empty()) names = absl::StrSplit(a.names, ',');
  size_t count = a.workers;
  if (count == 0) count = names.empty() ? shards.size() : names.size();
  if (!names.empty() && names.size() != count) {
    return FlagError("names", absl::StrCat("has ", names.size(), " names for ",
                                           count, " workers"));
  }
  const std::vector<std::string> speeds = absl::StrSplit(a.speeds, ',');
  const std::vector<std::string> links = absl::StrSplit(a.links, ',');
  for (const auto& [flag, given] :
       {std::pair("speeds", speeds.size()), std::pair("links", links.size())}) {
    if (given <= count) continue;
    return FlagError(
        flag, absl::StrCat("has ", given, " values for ", count, " workers"));
  }
  std::vector<sim::SimulatedWorker> workers;
  for (size_t i = 0; i < count; ++i) {
    sim::SimulatedWorker worker;
    worker.name = names.empty() ? absl::StrCat("w", i + 1) : names[i];
    if (!absl::SimpleAtod(At(speeds, i), &worker.speed) ||
        !(worker.speed >= 1e-3 && worker.speed <= 1e3)) {
      return FlagError("speeds",
                       absl::StrCat(At(speeds, i), ", expected 0.001 to 1000"));
    }
    ASSIGN_OR_RETURN(worker.line, ParseLine("links", At(links, i)));
    worker.open_data = [fs, path = shards[i % shards.size()]]()
        -> absl::StatusOr<std::unique_ptr<BatchSource>> {
      ASSIGN_OR_RETURN(TokenShard shard,
                       OpenTokenShard(fs, path, TokenFormat::kUint16));
      return MakeShardSource(std::move(shard));
    };
    workers.push_back(std::move(worker));
  }
  return workers;
}

// Test hook: DILOCO_TEST_MISTAKE plants one whose price is known.
absl::StatusOr<std::optional<sim::Mistake>> PlantedMistake() {
  const char* text = std::getenv("DILOCO_TEST_MISTAKE");
  if (text == nullptr) return std::nullopt;
  return sim::ParseMistake(text);
}

absl::StatusOr<sim::SimulationOptions> MakeOptions(FileSystem* fs,
                                                   const Arguments& a,
                                                   const RunConfig& config) {
  sim::SimulationOptions options;
  ASSIGN_OR_RETURN(options.run, OptionsOfRun(fs, config));
  options.run.state_dir = JoinPath(a.out, "state");
  options.scratch = JoinPath(a.out, "scratch");
  if (fs->Exists(options.run.state_dir)) {
    return FlagError("out", absl::StrCat(a.out, " has a run already"));
  }
  ASSIGN_OR_RETURN(options.workers, MakeWorkers(fs, a));
  ASSIGN_OR_RETURN(options.coordinator,
                   ParseLine("coordinator-link", a.coordinator_link));
  if (options.coordinator.latency > absl::ZeroDuration()) {
    return FlagError("coordinator-link", "the latency is that of --links");
  }
  ASSIGN_OR_RETURN(options.kills, ParseKills(a.kill));
  ASSIGN_OR_RETURN(options.step_time, ParseTime("step-time", a.step_time));
  ASSIGN_OR_RETURN(options.back_after, ParseTime("back-after", a.back_after));
  ASSIGN_OR_RETURN(options.checkpoint_every,
                   ParseTime("checkpoint-every", a.checkpoint_every));
  options.fs = fs;
  ASSIGN_OR_RETURN(const std::optional<sim::Mistake> mistake, PlantedMistake());
  options.make_trainer =
      [a, mistake](
          const RunSettings& settings,
          const Layout& layout) -> absl::StatusOr<std::unique_ptr<Trainer>> {
    ASSIGN_OR_RETURN(
        std::unique_ptr<Trainer> trainer,
        MakeTorchTrainer(settings.model, layout, settings.train,
                         {.threads = static_cast<int>(a.threads),
                          .micro_batch = static_cast<int64_t>(a.micro_batch),
                          .device = a.device}));
    if (!mistake.has_value()) return trainer;
    if (mistake->fragment.value_or(0) >= layout.fragments.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("DILOCO_TEST_MISTAKE names fragment ",
                       *mistake->fragment, " of ", layout.fragments.size()));
    }
    return sim::MakeMistakenTrainer(*mistake, std::move(trainer));
  };
  options.on_round = [](const sim::RoundRow& row) {
    absl::FPrintF(stderr, "%s\n", sim::RoundLine(row));
  };
  options.on_note = [](const std::string& note) {
    absl::FPrintF(stderr, "%s\n", note);
  };
  options.stop_requested = [] { return ShutdownRequested(); };
  return options;
}

std::string ReportJson(const sim::SimulationReport& report) {
  nlohmann::ordered_json json;
  const StatusReport& status = report.status;
  json["run"] = status.run;
  json["folded_tokens"] = status.folded_tokens;
  json["parameters"] = status.parameters;
  json["rounds"] = report.rounds.size();
  json["digests"] = nlohmann::ordered_json::array();
  for (const auto& fragment : status.fragments) {
    json["digests"].push_back(fragment.digest.ToHex());
  }
  json["eval_loss"] = nullptr;
  json["bits_per_byte"] = nullptr;
  for (const sim::RoundRow& row : report.rounds) {
    if (!row.eval_loss.has_value()) continue;
    json["eval_loss"] = *row.eval_loss;
    if (row.bits_per_byte > 0) json["bits_per_byte"] = row.bits_per_byte;
  }
  json["virtual_seconds"] = absl::ToDoubleSeconds(report.took);
  json["workers"] = nlohmann::ordered_json::array();
  for (const WorkerReport& worker : status.workers) {
    json["workers"].push_back(
        {{"name", worker.name},
         {"inner_steps", worker.progress.inner_steps},
         {"rounds_folded", worker.rounds_folded},
         {"tokens_folded", worker.tokens_folded},
         {"train_seconds", worker.progress.train_seconds},
         {"transfer_seconds", worker.progress.transfer_seconds},
         {"wait_seconds", worker.progress.wait_seconds},
         {"bytes_sent", worker.progress.bytes_sent},
         {"bytes_received", worker.progress.bytes_received}});
  }
  return json.dump(1);
}

void PrintTable(const sim::SimulationReport& report, absl::Duration real) {
  const StatusReport& status = report.status;
  absl::PrintF(
      "run %s: %d rounds, %d tokens folded, %s of virtual time in %s\n",
      status.run, report.rounds.size(), status.folded_tokens,
      absl::FormatDuration(absl::Trunc(report.took, absl::Seconds(1))),
      absl::FormatDuration(absl::Trunc(real, absl::Seconds(1))));
  for (const auto& fragment : status.fragments) {
    absl::PrintF("theta: version %d, digest %s\n", fragment.version,
                 fragment.digest.Short());
  }
  const auto last = std::find_if(
      report.rounds.rbegin(), report.rounds.rend(),
      [](const sim::RoundRow& row) { return row.eval_loss.has_value(); });
  if (last != report.rounds.rend()) {
    absl::PrintF("loss of theta: %.4f nats per token at version %d",
                 *last->eval_loss, last->version);
    if (last->bits_per_byte > 0) {
      absl::PrintF(", %.3f bits per byte", last->bits_per_byte);
    }
    absl::PrintF("\n");
  }
  absl::PrintF("\n%-16s %8s %8s %9s %9s %9s %10s %10s\n", "worker", "steps",
               "folded", "training", "transfer", "waiting", "MB sent",
               "MB recvd");
  for (const WorkerReport& worker : status.workers) {
    const WorkerProgress& p = worker.progress;
    const double all =
        std::max(1e-9, p.train_seconds + p.transfer_seconds + p.wait_seconds);
    absl::PrintF("%-16s %8d %8d %8.1f%% %8.1f%% %8.1f%% %10.2f %10.2f\n",
                 worker.name, p.inner_steps, worker.rounds_folded,
                 100 * p.train_seconds / all, 100 * p.transfer_seconds / all,
                 100 * p.wait_seconds / all,
                 static_cast<double>(p.bytes_sent) / 1e6,
                 static_cast<double>(p.bytes_received) / 1e6);
  }
}

absl::Status RunAll(const Arguments& a) {
  FileSystem* const fs = FileSystem::Posix();
  ASSIGN_OR_RETURN(const LoadedRun loaded, LoadRunConfig(fs, a.config));
  for (const std::string& warning : loaded.warnings) {
    absl::FPrintF(stderr, "%s\n", warning);
  }
  ASSIGN_OR_RETURN(sim::SimulationOptions options,
                   MakeOptions(fs, a, loaded.config));
  RETURN_IF_ERROR(fs->CreateDirs(a.out));
  const Instant begin = Clock::Real()->Now();
  ASSIGN_OR_RETURN(const sim::SimulationReport report,
                   sim::Simulate(std::move(options)));
  std::string rounds;
  for (const sim::RoundRow& row : report.rounds) {
    absl::StrAppend(&rounds, sim::RoundJson(row), "\n");
  }
  RETURN_IF_ERROR(WriteFileAtomic(fs, JoinPath(a.out, kRoundsFile), rounds));
  RETURN_IF_ERROR(WriteFileAtomic(fs, JoinPath(a.out, kReportFile),
                                  absl::StrCat(ReportJson(report), "\n")));
  PrintTable(report, Clock::Real()->Now() - begin);
  return absl::OkStatus();
}

}  // namespace

int RunSimulate(int argc, char** argv) {
  Arguments a;
  Flags flags("simulate",
              "Runs a run file with simulated workers, in virtual time.");
  DeclareFlags(a, flags);
  if (const auto code = flags.Parse(argc, argv)) return *code;
  LogLevel level;
  if (!ParseLogLevel(a.log_level, &level)) {
    absl::FPrintF(stderr,
                  "--log-level %s: one of debug, info, warning, error\n",
                  a.log_level);
    return kExitUsage;
  }
  SetLogLevel(level);
  SetLogComponent("simulate");
  InstallShutdownHandler();
  const absl::Status status = RunAll(a);
  if (!status.ok()) {
    absl::FPrintF(stderr, "simulate: %s\n", status.message());
  }
  return ExitCodeOfTool(status);
}

}  // namespace diloco

// The coordinator's run file (run.yaml): one file is one run. Parsed and
// checked once at start; the daemon, `config check` and `config print` share
// this code. Sections and keys are those of the file; field comments give units
// and what a value of 0 means.
//
//   ASSIGN_OR_RETURN(LoadedRun loaded, LoadRunConfig(fs, "run.yaml"));
//   for (const std::string& warning : loaded.warnings) ...
//   Policy policy = MakePolicy(loaded.config);
#ifndef COORDINATOR_CONFIG_H_
#define COORDINATOR_CONFIG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/config/run_settings.h"
#include "common/io/digest.h"
#include "common/io/file_system.h"
#include "common/model/fragments.h"
#include "common/model/model_config.h"
#include "common/tensor/layout.h"
#include "coordinator/core/machine.h"

namespace diloco {

enum class Preset { kDiloco, kFedavg, kStreaming };
// kAuto: for codecs whose published recipes have it, or that none has tried
// without: not for e3m0.
enum class ErrorFeedback { kAuto, kOn, kOff };
enum class OuterRule { kNesterov, kHeavyBall, kSgd };

// A file whose content belongs to the run: where it lies and its SHA-256.
struct ContentFile {
  std::string path;
  Digest digest;
};

// Paths are absolute or relative to the process's directory (those in the file
// are relative to the file). All values are within their documented bounds.
struct RunConfig {
  std::string run;
  uint64_t seed = 1;

  // Empty: theta(0) comes from the initialiser and `seed`. Otherwise a Hugging
  // Face directory, whose config.json has filled `model`.
  std::string model_dir;
  ModelConfig model;  // max_positions and head_dim are resolved.

  struct Data {
    std::optional<ContentFile> manifest;
    double bytes_per_token = 0;  // Of the evaluation shard; 0: not known.
    std::vector<ContentFile> tokenizer_files;  // Copied into every export.
  } data;

  TrainSettings train;  // seq_len comes from data.seq_len.

  struct Sync {
    Preset preset = Preset::kDiloco;
    Fragmentation fragments;
    uint32_t interval = 100;      // H, inner steps.
    uint32_t interval_first = 0;  // H of the first `rounds_first` rounds.
    uint32_t rounds_first = 0;    // 0: `interval` from the start.
    uint32_t overlap = 0;         // tau, inner steps.
    MergeMode merge = MergeMode::kExact;
    double mix = 0;       // alpha: share of the local value that a merge keeps.
    uint32_t quorum = 0;  // Updates that close a round;
    double quorum_share = 0;      // or of those it waits for. Both 0: all.
    absl::Duration grace;         // For the others, once the quorum is in;
    double grace_share = 0.05;    // or of the time that it took.
    bool steps_by_speed = false;  // Else all make `interval` steps.
    std::optional<absl::Duration> deadline;  // Absent: auto.
    uint32_t min_updates = 1;
    ShortRound short_round = ShortRound::kExtend;
    LatePolicy late = LatePolicy::kCarry;
    Weighting weight = Weighting::kTokens;
    MergeRule merge_rule = MergeRule::kMean;
    Codec up = Codec::kFp16;
    ErrorFeedback error_feedback = ErrorFeedback::kAuto;
    bool stochastic_rounding = false;
    Codec down = Codec::kFp32;
  } sync;

  struct Outer {
    OuterRule rule = OuterRule::kNesterov;
    double lr = 0.7;
    double momentum = 0.9;
    OuterSchedule schedule = {};
  } outer;

  // What refuses single updates.
  struct Screens {
    double norm = 20;  // Times the median; 0: none.
    bool replay = true;
  } screen;

  struct Join {
    uint32_t wait_for = 1;  // Workers that must join before round 1.
    uint32_t ramp_steps = 50;
    uint32_t max_workers = 256;
    absl::Duration lease =
        absl::Seconds(30);  // Silence until a worker is lost.
    bool probe = true;      // Of a worker that starts cold.
  } join;

  struct Eval {
    std::optional<ContentFile> shard;  // Headerless uint16 ids.
    uint32_t every = 1;      // Versions between evaluations; 0: never.
    uint64_t tokens = 0;     // Predictions per evaluation; 0: the whole shard.
    uint64_t shard_ids = 0;  // Ids in the shard.
  } eval;

  // Alarms that pause the run; 0: none.
  struct Guard {
    double eval_rise = 0;  // Nats per token above the lowest so far.
    double norm_jump = 0;  // Times the median norm of the updates before.
  } guard;

  struct Keep {
    uint32_t last = 5;    // Images kept.
    uint64_t every = 50;  // And each version that this divides; 0: none.
    uint64_t free_space = 100'000'000;  // Bytes left to others.
  } keep;

  // What dilococtl plan counts with; 0: not told.
  struct Prices {
    double gpu_hour = 0;   // Of one worker.
    double egress_gb = 0;  // Of 10^9 bytes.
  } prices;

  struct Listen {
    std::string control = "127.0.0.1:7600";
    std::string metrics = "127.0.0.1:7601";  // Empty: not served.
  } listen;

  struct State {
    std::string dir = "state";
    uint32_t image_every = 8;  // Versions between images.
  } state;
};

struct LoadedRun {
  RunConfig config;
  std::vector<std::string> warnings;  // "file:line:col: key: message".
};

// Reads, parses and checks the file and what it names (model directory,
// tokenizer files, evaluation shard). INVALID_ARGUMENT with all errors, one a
// line as "file:line:col: path.to.key: message"; touches nothing on disk.
absl::StatusOr<LoadedRun> LoadRunConfig(FileSystem* fs,
                                        const std::string& path);
// The same over a text; `path` names it in messages and anchors its paths.
absl::StatusOr<LoadedRun> ParseRunConfig(FileSystem* fs,
                                         const std::string& path,
                                         absl::string_view text);

// Canonical YAML with every key and its effective value; reads back to the same
// configuration (paths are printed as resolved).
std::string PrintRunConfig(const RunConfig& config);

// What makes the run, a line "key = value" each: all keys but those of this
// machine (listen, state, keep, export); files count by content, not by path.
// The state directory keeps it.
std::string SettingsText(const RunConfig& config);
// Of that text. Only the coordinator computes it.
Digest SettingsDigest(const RunConfig& config);

// A key of the settings text and how it may change in a run that exists.
struct ChangeableSetting {
  std::string key;
  bool at_once = false;  // Else from the next round on.
  std::string expected;  // In words.
  std::string doc;
};
std::vector<ChangeableSetting> ChangeableSettings();

// `config` with other values, written as in a file: what `dilococtl set` does.
// NOT_FOUND: no such key. FAILED_PRECONDITION: it may not change so.
// INVALID_ARGUMENT: the value is none of its own, or does not go with others.
absl::StatusOr<RunConfig> ChangeSettings(
    const RunConfig& config, const std::map<std::string, std::string>& values);

Policy MakePolicy(const RunConfig& config);
RunSettings MakeRunSettings(const RunConfig& config, const Layout& layout);

}  // namespace diloco

#endif  // COORDINATOR_CONFIG_H_

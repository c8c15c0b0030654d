#include "coordinator/config.h"

#include <algorithm>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/edit_distance.h"
#include "common/base/status_macros.h"
#include "common/config/document.h"
#include "common/config/field_table.h"
#include "common/data/dataset_manifest.h"
#include "common/model/hf_directory.h"
#include "common/model/sentencepiece_model.h"
#include "coordinator/config_fields.h"
#include "coordinator/presets.h"

namespace diloco {
namespace {

constexpr uint64_t kMaxEvalShardBytes = 64 << 20;
// Larger tokenizer files do not exist; a wrong path should not be read whole.
constexpr uint64_t kMaxTokenizerBytes = 256 << 20;
// Outer steps below which momentum 0.9 is worse than never communicating.
constexpr uint64_t kShortRunSteps = 200;

constexpr const char* kShapeKeys[] = {
    "model.layers",     "model.hidden",       "model.heads",
    "model.kv_heads",   "model.head_dim",     "model.ffn",
    "model.vocab",      "model.tied",         "model.qk_norm",
    "model.rope_theta", "model.rms_norm_eps", "model.max_positions"};

// One file being checked: its table, what it filled, and what is wrong.
class Checker {
 public:
  Checker(FileSystem* fs, const std::string& path)
      : fs_(fs),
        base_(DirName(path)),
        errors_(path),
        table_(RunFileTable(&loaded_.config, &extras_, base_)) {}

  absl::StatusOr<LoadedRun> Run(absl::string_view text) {
    Node root;
    if (!ParseDocument(text, &errors_, &root)) return errors_.ToStatus();
    RunConfig& config = loaded_.config;
    if (base_ != ".") config.state.dir = JoinPath(base_, config.state.dir);
    table_.ReadAhead(root, "sync.preset");
    ApplyPreset(config.sync.preset, &config);
    table_.Read(root, &errors_);
    CheckModel();
    ResolveFragments();
    CheckTrain();
    CheckSync();
    CheckData();
    CheckEval();
    RETURN_IF_ERROR(errors_.ToStatus());
    loaded_.warnings = table_.warnings();
    return std::move(loaded_);
  }

  // Other values for some keys of a configuration that is good.
  absl::StatusOr<RunConfig> Change(
      const RunConfig& config,
      const std::map<std::string, std::string>& values) {
    loaded_.config = config;
    for (const auto& [key, value] : values) {
      RETURN_IF_ERROR(CheckMayChange(key));
      const std::string problem = table_.Assign(key, value);
      if (!problem.empty()) errors_.Add({}, key, problem);
    }
    if (errors_.empty()) {
      CheckTrain();
      CheckSync();
      CheckEvalTokens();
    }
    if (!errors_.empty()) return absl::InvalidArgumentError(errors_.Words());
    return std::move(loaded_.config);
  }

 private:
  absl::Status CheckMayChange(const std::string& key) const {
    const Field* field = table_.Find(key);
    if (field == nullptr) {
      std::vector<std::string> keys;
      for (const Field& known : table_.fields()) keys.push_back(known.path);
      const std::string nearest = NearestName(key, keys);
      return absl::NotFoundError(absl::StrCat(
          "there is no setting ", key,
          nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?"),
          " dilococtl set --list shows those that may change"));
    }
    if (field->no_effect) {
      return absl::FailedPreconditionError(
          absl::StrCat(key, " has no effect in this build"));
    }
    if (key == "eval.shard") {
      return absl::FailedPreconditionError(
          "eval.shard is a file: name it in the run file and start the "
          "coordinator with --accept");
    }
    switch (field->change) {
      case Change::kFixed:
        return absl::FailedPreconditionError(absl::StrCat(
            key,
            " is fixed: it is part of what the run is, and what workers "
            "and state directory hold was made with it; to change it, "
            "start a new run"));
      case Change::kLocal:
        return absl::FailedPreconditionError(
            absl::StrCat(key,
                         " belongs to the coordinator's machine: change "
                         "the run file and restart the coordinator"));
      case Change::kBoundary:
      case Change::kAtOnce:
        break;
    }
    return absl::OkStatus();
  }

  void Error(absl::string_view path, absl::string_view message) {
    errors_.Add(table_.Where(path), path, message);
  }

  void CheckModel() {
    RunConfig& config = loaded_.config;
    ModelConfig& model = config.model;
    if (!config.model_dir.empty()) {
      for (const char* key : kShapeKeys) {
        if (!table_.IsSet(key)) continue;
        Error(key, absl::StrCat("comes from ", config.model_dir,
                                "/config.json (model.from); remove it here"));
      }
      absl::StatusOr<ModelConfig> from = ReadHfConfig(fs_, config.model_dir);
      if (!from.ok()) {
        Error("model.from", from.status().message());
        return;
      }
      const double z_loss = model.z_loss;
      model = *from;
      model.z_loss = z_loss;
    } else {
      bool complete = true;
      for (const char* key : {"model.layers", "model.hidden", "model.heads",
                              "model.ffn", "model.vocab"}) {
        if (table_.IsSet(key)) continue;
        complete = false;
        Error(key, "required key is missing (or give model.from: DIR)");
      }
      if (!complete) return;
      if (model.kv_heads == 0) model.kv_heads = model.heads;
      if (model.head_dim == 0 && model.heads > 0) {
        if (model.hidden % model.heads != 0) {
          Error("model.hidden",
                absl::StrCat(model.hidden, " is no multiple of model.heads ",
                             model.heads, "; or set model.head_dim"));
          return;
        }
        model.head_dim = model.hidden / model.heads;
      }
      if (model.max_positions == 0) model.max_positions = config.train.seq_len;
    }
    // Without a good seq_len its own error stands in the list already.
    if (config.train.seq_len == 0) return;
    if (model.max_positions < config.train.seq_len) {
      Error("data.seq_len",
            absl::StrCat(config.train.seq_len, " is more than the model's ",
                         model.max_positions, " positions"));
    }
    if (const absl::Status valid = ValidateModel(model); !valid.ok()) {
      Error("model", valid.message());
    }
    if (model.vocab > 65536) {
      table_.Warn(errors_,
                  config.model_dir.empty() ? "model.vocab" : "model.from",
                  absl::StrCat("the vocabulary has ", model.vocab,
                               " ids, but shards hold uint16 ids: those from "
                               "65536 on never occur"));
    }
  }

  void CheckTrain() {
    const TrainSettings& train = loaded_.config.train;
    if (train.tokens == 0 || train.seq_len == 0 || train.batch_tokens == 0) {
      return;
    }
    if (train.batch_tokens % train.seq_len != 0) {
      Error("train.batch_tokens",
            absl::StrCat(train.batch_tokens, " is no multiple of data.seq_len ",
                         train.seq_len));
    }
    if (train.tokens < train.batch_tokens) {
      Error("train.tokens", absl::StrCat(train.tokens,
                                         " is less than one step "
                                         "(train.batch_tokens ",
                                         train.batch_tokens, ")"));
    }
    if (train.warmup_tokens > train.tokens) {
      Error("train.schedule.warmup_tokens",
            absl::StrCat(train.warmup_tokens, " is more than train.tokens ",
                         train.tokens));
    } else if (train.schedule == ScheduleShape::kWsd &&
               static_cast<double>(train.warmup_tokens) >
                   (1 - train.decay_share) *
                       static_cast<double>(train.tokens)) {
      Error("train.schedule",
            "warm-up and decay together are longer than the run: lower "
            "warmup_tokens or decay_share");
    }
    if (train.schedule != ScheduleShape::kWsd &&
        table_.IsSet("train.schedule.decay_share")) {
      table_.Warn(errors_, "train.schedule.decay_share",
                  "set, but only the shape wsd uses it");
    }
  }

  // Versions the run will publish with the workers it waits for.
  uint64_t OuterSteps() const {
    const RunConfig& config = loaded_.config;
    const uint64_t per_step = config.train.batch_tokens * config.join.wait_for;
    if (per_step == 0) return 0;
    const uint64_t steps = config.train.tokens / per_step;
    const uint64_t first =
        uint64_t{config.sync.rounds_first} * config.sync.interval_first;
    if (steps <= first) return steps / std::max(1u, config.sync.interval_first);
    return config.sync.rounds_first + (steps - first) / config.sync.interval;
  }

  // What the file leaves open follows from the model and from other keys.
  void ResolveFragments() {
    RunConfig::Sync& sync = loaded_.config.sync;
    Fragmentation& fragments = sync.fragments;
    if (!table_.IsSet("sync.fragments")) {
      if (!fragments.names.empty()) {
        fragments.count = static_cast<uint32_t>(fragments.names.size());
      } else {
        fragments.count =
            FragmentsOf(RowOf(sync.preset), loaded_.config.model.layers);
      }
    }
    if (table_.IsSet("sync.pattern")) return;
    const FragmentPattern published = RowOf(sync.preset).pattern;
    fragments.pattern = !fragments.names.empty() ? FragmentPattern::kNames
                        : fragments.count == 1   ? FragmentPattern::kWhole
                        : published == FragmentPattern::kWhole
                            ? FragmentPattern::kStrided
                            : published;
  }

  void CheckFragments() {
    const RunConfig& config = loaded_.config;
    const Fragmentation& fragments = config.sync.fragments;
    const bool by_names = fragments.pattern == FragmentPattern::kNames;
    if (by_names == fragments.names.empty()) {
      Error("sync.fragment_names",
            by_names ? "the pattern names needs it: a list of tensor names, "
                       "with *, for each fragment"
                     : absl::StrCat("set, but sync.pattern is ",
                                    FragmentPatternName(fragments.pattern),
                                    ": expected names"));
      return;
    }
    // A model that is not good has its own errors in the list.
    if (ValidateModel(config.model).ok()) {
      const absl::Status laid_out =
          ModelLayout(config.model, fragments).status();
      if (!laid_out.ok()) {
        Error(by_names ? "sync.fragment_names" : "sync.fragments",
              laid_out.message());
        return;
      }
    }
    const RunConfig::Sync& sync = config.sync;
    const bool first = sync.rounds_first > 0 && sync.interval_first > 0 &&
                       sync.interval_first < sync.interval;
    const uint32_t least = first ? sync.interval_first : sync.interval;
    const char* const key = first ? "sync.interval_first" : "sync.interval";
    if (fragments.count > least) {
      Error("sync.fragments",
            absl::StrCat(fragments.count, " fragments with ", key, " ", least,
                         ": each is due once in it, at a step of its own; "
                         "expected at most ",
                         least));
    }
    if (sync.overlap >= least) {
      Error("sync.overlap",
            absl::StrCat(sync.overlap, " with ", key, " ", least,
                         ": a result is merged before the next update is "
                         "taken; expected 0 to ",
                         least - 1));
    }
  }

  void CheckSync() {
    RunConfig& config = loaded_.config;
    CheckFragments();
    if ((config.sync.interval_first == 0) != (config.sync.rounds_first == 0)) {
      Error(config.sync.interval_first == 0 ? "sync.rounds_first"
                                            : "sync.interval_first",
            "interval_first and rounds_first go together: set both or none");
    }
    if (config.sync.error_feedback == ErrorFeedback::kOn &&
        config.sync.up == Codec::kFp32) {
      Error("sync.error_feedback",
            "sync.up fp32 loses nothing: expected auto or off");
    }
    if (config.sync.stochastic_rounding && config.sync.up != Codec::kInt8 &&
        config.sync.up != Codec::kE3m0) {
      Error("sync.rounding",
            absl::StrCat("sync.up ", CodecName(config.sync.up),
                         " always rounds to nearest: expected nearest, or "
                         "sync.up int8 or e3m0"));
    }
    if (config.join.wait_for > config.join.max_workers) {
      Error("join.wait_for", absl::StrCat(config.join.wait_for,
                                          " is more than join.max_workers ",
                                          config.join.max_workers));
    }
    if (config.sync.min_updates > config.join.max_workers) {
      Error("sync.min_updates", absl::StrCat(config.sync.min_updates,
                                             " is more than join.max_workers ",
                                             config.join.max_workers));
    }
    CheckOuterSchedule();
    if (config.sync.quorum > config.join.max_workers) {
      Error("sync.quorum",
            absl::StrCat(config.sync.quorum, " is more than join.max_workers ",
                         config.join.max_workers, ": expected 1 to ",
                         config.join.max_workers, ", or all"));
    }
    if (config.sync.quorum == 0 && config.sync.quorum_share == 0 &&
        table_.IsSet("sync.grace")) {
      table_.Warn(errors_, "sync.grace",
                  "set, but sync.quorum all waits for every worker");
    }
    if (config.sync.steps_by_speed &&
        config.sync.weight == Weighting::kTokens) {
      table_.Warn(errors_, "sync.steps",
                  "by_speed: a faster worker has more tokens and weighs more, "
                  "and so does its own data; sync.weight uniform weighs all "
                  "alike");
    }
    if (config.outer.rule == OuterRule::kSgd) {
      if (!table_.IsSet("outer.momentum")) config.outer.momentum = 0;
      if (config.outer.momentum != 0) {
        Error("outer.momentum",
              "the rule sgd has no momentum: set it to 0, or "
              "outer.rule to nesterov");
      }
    } else if (config.outer.momentum >= 0.9 && errors_.empty() &&
               OuterSteps() < kShortRunSteps) {
      table_.Warn(errors_, "outer.momentum",
                  absl::StrCat("momentum ", config.outer.momentum,
                               " in a run of about ", OuterSteps(),
                               " outer steps does worse than no communication; "
                               "use 0.5 below ",
                               kShortRunSteps));
    }
  }

  void CheckOuterSchedule() {
    const OuterSchedule& schedule = loaded_.config.outer.schedule;
    if (schedule.shape != OuterShape::kConstant) {
      if (schedule.decay_rounds == 0) {
        Error("outer.schedule.decay_rounds",
              "the shape linear or cosine needs it: expected 1 or more rounds");
      }
      return;
    }
    for (const char* key :
         {"outer.schedule.decay_rounds", "outer.schedule.min_lr"}) {
      if (table_.IsSet(key)) {
        table_.Warn(errors_, key, "set, but the shape constant has no decay");
      }
    }
  }

  // Adds what `path` names; the errors point at `key`.
  void AddTokenizerFile(absl::string_view key, const std::string& path) {
    absl::StatusOr<std::string> content =
        ReadFile(fs_, path, kMaxTokenizerBytes);
    if (!content.ok()) {
      Error(key, content.status().message());
      return;
    }
    const std::string own_name = path.substr(path.rfind('/') + 1);
    if (!IsPlainFileName(own_name)) {
      Error(key,
            absl::StrCat("the file \"", absl::CHexEscape(own_name),
                         "\" goes into every export: rename it to "
                         "letters, digits, '.', '_' and '-' (not hidden)"));
      return;
    }
    const std::string name = HfTokenizerName(path);
    static const std::set<std::string>* const kTaken =
        new std::set<std::string>{"config.json", "generation_config.json",
                                  "model.safetensors", "README.md"};
    if (kTaken->count(name) > 0 || !tokenizer_names_.insert(name).second) {
      Error(key, absl::StrCat("two files of an export would be called ", name));
      return;
    }
    // Other kinds of tokenizer.model exist (tiktoken ranks): those only travel.
    const absl::StatusOr<SentencePieceModel> pieces =
        ParseSentencePieceModel(path, *content);
    const int64_t vocab = loaded_.config.model.vocab;
    if (name == "tokenizer.model" && pieces.ok() && vocab > 0 &&
        static_cast<int64_t>(pieces->pieces.size()) > vocab) {
      Error(key, absl::StrCat(path, " has ", pieces->pieces.size(),
                              " pieces, the model's vocabulary only ", vocab));
      return;
    }
    loaded_.config.data.tokenizer_files.push_back({path, Sha256(*content)});
  }

  // Text bytes per token of the evaluation shard, when the manifest lists it.
  void ReadBytesPerToken(const std::string& content) {
    const absl::StatusOr<DatasetManifest> manifest =
        ParseManifest(extras_.manifest, content);
    if (!manifest.ok()) {
      Error("data.manifest", manifest.status().message());
      return;
    }
    const std::string& shard = extras_.eval_shard;
    const DatasetManifest::Shard* listed =
        manifest->Find(shard.substr(shard.rfind('/') + 1));
    if (listed == nullptr || listed->tokens == 0) return;
    loaded_.config.data.bytes_per_token =
        static_cast<double>(listed->text_bytes) /
        static_cast<double>(listed->tokens);
  }

  void CheckData() {
    RunConfig& config = loaded_.config;
    if (!extras_.manifest.empty()) {
      absl::StatusOr<std::string> content = ReadFile(fs_, extras_.manifest);
      if (content.ok()) {
        config.data.manifest = ContentFile{extras_.manifest, Sha256(*content)};
        ReadBytesPerToken(*content);
      } else {
        Error("data.manifest", content.status().message());
      }
    }
    std::vector<std::string> named = extras_.tokenizer;
    const char* key = "data.tokenizer";
    if (named.empty() && !config.model_dir.empty()) {
      named = HfTokenizerFiles(fs_, config.model_dir);
      key = "model.from";
    }
    for (const std::string& path : named) {
      if (!fs_->List(path).ok()) {
        AddTokenizerFile(key, path);
        continue;
      }
      const std::vector<std::string> files = HfTokenizerFiles(fs_, path);
      if (files.empty()) {
        Error(key, absl::StrCat("the directory ", path,
                                " has no tokenizer files (tokenizer.model, "
                                "tokenizer.json, ...)"));
      }
      for (const std::string& file : files) AddTokenizerFile(key, file);
    }
  }

  // The ids of the shard, checked; an error stands in the list otherwise.
  void CheckEval() {
    RunConfig& config = loaded_.config;
    const std::string& path = extras_.eval_shard;
    if (path.empty()) {
      for (const char* key : {"eval.every", "eval.tokens", "guard.eval_rise"}) {
        if (table_.IsSet(key)) {
          table_.Warn(errors_, key,
                      "set, but nothing is evaluated without eval.shard");
        }
      }
      return;
    }
    absl::StatusOr<std::string> content = ReadEvalShard(path);
    if (!content.ok()) {
      Error("eval.shard", content.status().message());
      return;
    }
    const uint64_t ids = content->size() / 2;
    const uint64_t needed = uint64_t{config.train.seq_len} + 1;
    if (config.train.seq_len > 0 && ids < needed) {
      Error("eval.shard", absl::StrCat(path, " has ", ids,
                                       " ids; a window "
                                       "needs ",
                                       needed));
      return;
    }
    for (uint64_t i = 0; config.model.vocab > 0 && i < ids; ++i) {
      const uint32_t id = static_cast<uint8_t>((*content)[2 * i]) |
                          static_cast<uint8_t>((*content)[2 * i + 1]) << 8;
      if (id < config.model.vocab) continue;
      Error("eval.shard",
            absl::StrCat(path, ": id ", id, " at index ", i,
                         " is not below the vocabulary of ", config.model.vocab,
                         "; wrong shard, or not uint16?"));
      return;
    }
    CheckEvalTokens();
    config.eval.shard = ContentFile{path, Sha256(*content)};
    config.eval.shard_ids = ids;
  }

  void CheckEvalTokens() {
    const RunConfig& config = loaded_.config;
    if (config.eval.tokens != 0 && config.eval.tokens < config.train.seq_len) {
      Error("eval.tokens",
            absl::StrCat(config.eval.tokens, " is less than a window of ",
                         config.train.seq_len));
    }
  }

  absl::StatusOr<std::string> ReadEvalShard(const std::string& path) {
    ASSIGN_OR_RETURN(const auto file, fs_->OpenForRead(path));
    ASSIGN_OR_RETURN(const uint64_t size, file->Size());
    if (size > kMaxEvalShardBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " has ", size, " bytes; at most ",
                       kMaxEvalShardBytes, " (64 MiB) are handed out"));
    }
    if (size % 2 != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, " has ", size, " bytes: an odd number is no list of uint16"));
    }
    std::string content(size, '\0');
    RETURN_IF_ERROR(file->ReadAt(0, absl::MakeSpan(content)));
    return content;
  }

  FileSystem* const fs_;
  const std::string base_;
  ConfigErrors errors_;
  LoadedRun loaded_;
  RunFileExtras extras_;
  std::set<std::string> tokenizer_names_;
  FieldTable table_;
};

bool IsShapeKey(const Field& field) {
  return std::any_of(std::begin(kShapeKeys), std::end(kShapeKeys),
                     [&](const char* key) { return field.path == key; });
}

// A table over a copy of `config`, for printing.
struct PrintTable {
  explicit PrintTable(const RunConfig& source)
      : config(source), table(RunFileTable(&config, &extras, ".")) {
    for (const ContentFile& file : config.data.tokenizer_files) {
      extras.tokenizer.push_back(file.path);
    }
    if (config.data.manifest) extras.manifest = config.data.manifest->path;
    if (config.eval.shard) extras.eval_shard = config.eval.shard->path;
  }
  RunConfig config;
  RunFileExtras extras;
  FieldTable table;
};

}  // namespace

absl::StatusOr<LoadedRun> ParseRunConfig(FileSystem* fs,
                                         const std::string& path,
                                         absl::string_view text) {
  return Checker(fs, path).Run(text);
}

absl::StatusOr<LoadedRun> LoadRunConfig(FileSystem* fs,
                                        const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(fs, path));
  return ParseRunConfig(fs, path, text);
}

std::string PrintRunConfig(const RunConfig& config) {
  PrintTable print(config);
  return print.table.Print([&](const Field& field) {
    if (field.no_effect) return false;
    return config.model_dir.empty() || !IsShapeKey(field);
  });
}

std::string SettingsText(const RunConfig& config) {
  PrintTable print(config);
  std::string text;
  for (const Field& field : print.table.fields()) {
    if (field.no_effect || field.change == Change::kLocal ||
        field.path == "model.from" || field.path == "data.manifest" ||
        field.path == "data.tokenizer" || field.path == "eval.shard") {
      continue;
    }
    // They have no meaning for one fragment.
    if (config.sync.fragments.count == 1 &&
        (field.path == "sync.pattern" || field.path == "sync.fragment_names")) {
      continue;
    }
    absl::StrAppend(&text, field.path, " = ", field.value.print(), "\n");
  }
  if (config.data.manifest) {
    absl::StrAppend(
        &text, "data.manifest = ", config.data.manifest->digest.ToHex(), "\n");
  }
  for (const ContentFile& file : config.data.tokenizer_files) {
    absl::StrAppend(&text, "data.tokenizer.", HfTokenizerName(file.path), " = ",
                    file.digest.ToHex(), "\n");
  }
  if (config.eval.shard) {
    absl::StrAppend(&text, "eval.shard = ", config.eval.shard->digest.ToHex(),
                    "\n");
  }
  return text;
}

Digest SettingsDigest(const RunConfig& config) {
  return Sha256(SettingsText(config));
}

std::vector<ChangeableSetting> ChangeableSettings() {
  PrintTable print{RunConfig()};
  std::vector<ChangeableSetting> settings;
  for (const Field& field : print.table.fields()) {
    if (field.no_effect || (field.change != Change::kBoundary &&
                            field.change != Change::kAtOnce)) {
      continue;
    }
    settings.push_back({field.path, field.change == Change::kAtOnce,
                        field.value.expected, field.doc});
  }
  return settings;
}

absl::StatusOr<RunConfig> ChangeSettings(
    const RunConfig& config, const std::map<std::string, std::string>& values) {
  return Checker(FileSystem::Posix(), "settings").Change(config, values);
}

Policy MakePolicy(const RunConfig& config) {
  Policy policy;
  policy.train_tokens = config.train.tokens;
  policy.batch_tokens = config.train.batch_tokens;
  policy.interval = config.sync.interval;
  policy.interval_first = config.sync.interval_first;
  policy.rounds_first = config.sync.rounds_first;
  policy.min_updates = config.sync.min_updates;
  policy.short_round = config.sync.short_round;
  policy.late = config.sync.late;
  policy.weighting = config.sync.weight;
  policy.deadline = config.sync.deadline;
  policy.quorum = config.sync.quorum;
  policy.quorum_share = config.sync.quorum_share;
  policy.grace = config.sync.grace;
  policy.grace_share = config.sync.grace_share;
  policy.steps_by_speed = config.sync.steps_by_speed;
  policy.wait_for = config.join.wait_for;
  policy.max_workers = config.join.max_workers;
  policy.lease = config.join.lease;
  policy.outer_lr = config.outer.lr;
  policy.outer_momentum = config.outer.momentum;
  policy.nesterov = config.outer.rule == OuterRule::kNesterov;
  policy.outer_schedule = config.outer.schedule;
  policy.merge = config.sync.merge_rule;
  policy.exact = config.sync.merge == MergeMode::kExact;
  policy.inner_lr = config.train.lr;
  policy.screen_norm = config.screen.norm;
  policy.screen_replay = config.screen.replay;
  policy.codec_up = config.sync.up;
  policy.guard_eval_rise = config.guard.eval_rise;
  policy.guard_norm_jump = config.guard.norm_jump;
  if (config.eval.shard.has_value() && config.eval.every > 0) {
    const uint64_t windows = (config.eval.shard_ids - 1) / config.train.seq_len;
    policy.eval_every = config.eval.every;
    policy.eval_windows =
        config.eval.tokens == 0
            ? windows
            : std::min(windows, config.eval.tokens / config.train.seq_len);
  }
  return policy;
}

RunSettings MakeRunSettings(const RunConfig& config, const Layout& layout) {
  RunSettings settings;
  settings.run = config.run;
  settings.seed = config.seed;
  settings.model = config.model;
  settings.train = config.train;
  settings.fragments = config.sync.fragments;
  settings.overlap = config.sync.overlap;
  settings.merge = config.sync.merge;
  settings.mix = config.sync.mix;
  settings.codec_up = config.sync.up;
  settings.codec_down = config.sync.down;
  settings.error_feedback =
      config.sync.error_feedback == ErrorFeedback::kAuto
          ? config.sync.up == Codec::kInt8 ||
                config.sync.up == Codec::kInt8Buckets
          : config.sync.error_feedback == ErrorFeedback::kOn;
  settings.stochastic_rounding = config.sync.stochastic_rounding;
  settings.late = config.sync.late;
  settings.join_ramp_steps = config.join.ramp_steps;
  settings.join_probe = config.join.probe;
  settings.layout_digest = layout.ComputeDigest();
  return settings;
}

}  // namespace diloco

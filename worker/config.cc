#include "worker/config.h"

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/config/document.h"
#include "common/config/field_table.h"
#include "worker/limits.h"

namespace diloco {
namespace {

// A chunk of 1 MiB must get through before either side gives its stream up.
constexpr uint64_t kSlowestBulk = 64 << 10;

// What people look for here although it belongs to the run.
constexpr const char* kRunKeys[] = {
    "model",   "data",      "train",     "sync",     "outer",
    "join",    "eval",      "keep",      "export",   "guard",
    "state",   "seed",      "interval",  "H",        "steps",
    "lr",      "batch",     "betas",     "momentum", "batch_tokens",
    "seq_len", "precision", "optimizer", "schedule", "weight_decay",
    "clip",    "tokens",    "codec",     "up",       "down",
    "preset",  "vocab"};

Value LineageId(std::string* target) {
  Value value;
  value.expected = "32 hexadecimal digits";
  value.read = [target](const Node& node) -> std::string {
    if (node.kind != Node::Kind::kScalar) return "it is no text";
    const absl::StatusOr<std::string> bytes = FromHex(node.text);
    if (!bytes.ok() || bytes->size() != 16) return "it is no lineage";
    *target = *bytes;
    return "";
  };
  value.print = [target] { return QuoteText(ToHex(*target)); };
  return OrNone(std::move(value), target);
}

// `config` and `shard` outlive the table. `base` is the file's directory.
FieldTable WorkerFileTable(WorkerConfig* config, std::string* shard,
                           const std::string& base) {
  FieldTable table;
  const auto add = [&](std::string path, Value value, std::string doc,
                       bool required = false) {
    table.Add({.path = std::move(path),
               .value = std::move(value),
               .doc = std::move(doc),
               .change = Change::kLocal,
               .required = required});
  };
  add("coordinator", HostPort(&config->coordinator),
      "Where the coordinator listens.", true);
  add("name", Name(&config->name),
      "This worker's name, unique in the run; its state is kept under it.",
      true);
  add("run", OrNone(Name(&config->run), &config->run),
      "Join only a run of this name.");
  add("lineage", LineageId(&config->lineage), "Join only this lineage.");
  add("device",
      NotYet(Choice<std::string>(&config->device, {{"cpu", "cpu"}}),
             {"cuda", "cuda:0", "gpu"}),
      "What trains.");
  add("threads",
      OrWord(
          Count(&config->threads, 1u, kMaxThreads), "auto",
          [config] { return config->threads == 0; },
          [config] { config->threads = 0; }),
      "Threads that compute; auto: one per core.");
  add("data_dir", Path(&config->data_dir, base), "Where the data lies.");
  add("shard", Path(shard, ""), "Token ids to train on, relative to data_dir.",
      true);
  add("dtype",
      Choice<TokenDtype>(&config->dtype, {{"uint16", TokenDtype::kUint16}}),
      "Width of the ids in the shard.");
  add("scratch", Path(&config->scratch, base),
      "Session, checkpoints and outgoing updates; one per worker.");
  add("micro_batch", Count(&config->micro_batch, 0u, 1u << 20),
      "Windows computed at a time; less memory, same result; 0: the whole "
      "batch.");
  add("connect_timeout",
      Duration(&config->connect_timeout, absl::Seconds(1), absl::Hours(24)),
      "How long the first join may find nobody before the worker ends (75).");
  add("checkpoint.every",
      Duration(&config->checkpoint_every, absl::Seconds(1), absl::Hours(24)),
      "Time between checkpoints in mid-window.");
  add("drain_timeout",
      Duration(&config->drain_timeout, absl::Seconds(1), absl::Hours(24)),
      "How long a stopped or drained worker may take to hand in what is done; "
      "then it ends and keeps the rest on disk.");
  add("bulk.max_rate",
      OrWord(
          ByteRate(&config->bulk_max_rate, kSlowestBulk), "none",
          [config] { return config->bulk_max_rate == 0; },
          [config] { config->bulk_max_rate = 0; }),
      "Cap on uploads and on downloads.");
  add("listen.metrics",
      OrNone(MetricsAddress(&config->metrics), &config->metrics),
      "Where /metrics is served.");
  for (const char* key : kRunKeys) {
    table.Refuse(key,
                 "a setting of the run: it belongs in the coordinator's "
                 "run.yaml, which hands it to every worker; remove it here");
  }
  for (const char* later : {"certificates", "recompute"}) {
    table.Refuse(later, "not available yet in this build; remove it");
  }
  return table;
}

}  // namespace

absl::StatusOr<LoadedWorker> ParseWorkerConfig(const std::string& path,
                                               absl::string_view text) {
  ConfigErrors errors(path);
  Node root;
  if (!ParseDocument(text, &errors, &root)) return errors.ToStatus();
  LoadedWorker loaded;
  WorkerConfig& config = loaded.config;
  const std::string base = DirName(path);
  if (base != ".") {
    config.data_dir = base;
    config.scratch = JoinPath(base, config.scratch);
  }
  std::string shard;
  FieldTable table = WorkerFileTable(&config, &shard, base);
  table.Read(root, &errors);
  RETURN_IF_ERROR(errors.ToStatus());
  config.shard = shard[0] == '/' || config.data_dir == "."
                     ? shard
                     : JoinPath(config.data_dir, shard);
  loaded.warnings = table.warnings();
  return loaded;
}

absl::StatusOr<LoadedWorker> LoadWorkerConfig(FileSystem* fs,
                                              const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(fs, path));
  return ParseWorkerConfig(path, text);
}

std::string PrintWorkerConfig(const WorkerConfig& config) {
  WorkerConfig copy = config;
  // The path below data_dir, as the file has it.
  std::string shard = config.shard;
  const std::string prefix = absl::StrCat(config.data_dir, "/");
  if (shard.compare(0, prefix.size(), prefix) == 0) {
    shard.erase(0, prefix.size());
  }
  return WorkerFileTable(&copy, &shard, ".").Print();
}

}  // namespace diloco

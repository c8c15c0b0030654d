// Implements train_local.h.
#include "worker/tools/train_local.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/io/file_system.h"
#include "worker/limits.h"
#include "worker/tools/flags.h"
#include "worker/tools/local_run.h"

namespace diloco {
namespace {

constexpr uint64_t kMaxCount = 1 << 20;
constexpr uint64_t kMaxSteps = 1 << 23;  // Tokens still fit 64 bits.
constexpr double kMaxReal = 1e6;

struct Arguments {
  std::string model = "tiny";
  uint64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, ffn = 0;
  uint64_t vocab = 2048;
  bool tied = true;
  bool qk_norm = false;
  double z_loss = 0;
  std::string data;
  std::string dtype = "uint16";
  std::string schedule = "wsd";
  std::string tokenizer;
  uint64_t seq_len = 128;
  uint64_t threads = 1;
  uint64_t micro_batch = 0;
  uint64_t log_every = 10;
  bool json = false;
  LocalRunOptions run;
};

void DeclareFlags(Arguments& a, Flags& flags) {
  flags.Text("data", &a.data,
             "shard of token ids; several, separated by commas, share a batch");
  flags.Count("steps", &a.run.steps, "optimiser steps", 1, kMaxSteps);
  flags.Text("model", &a.model, "tiny or small; the shape flags change it");
  flags.Count("layers", &a.layers, "0: as the model says; likewise below", 0,
              kMaxCount);
  flags.Count("hidden", &a.hidden, "width", 0, kMaxCount);
  flags.Count("heads", &a.heads, "query heads", 0, kMaxCount);
  flags.Count("kv-heads", &a.kv_heads, "key/value heads", 0, kMaxCount);
  flags.Count("ffn", &a.ffn, "width of the MLP", 0, kMaxCount);
  flags.Count("vocab", &a.vocab, "rows of the embedding", 1, kMaxCount);
  flags.Switch("tied", &a.tied, "the head shares the embedding");
  flags.Switch("qk-norm", &a.qk_norm, "normalise queries and keys");
  flags.Real("z-loss", &a.z_loss, "factor of the squared log-partition term");
  flags.Text("init-from", &a.run.init_dir,
             "Hugging Face directory; default: from the seed");
  flags.Count("seed", &a.run.seed, "initial values and order of the data");
  flags.Count("batch", &a.run.batch, "windows a step", 1, kMaxCount);
  flags.Count("seq-len", &a.seq_len, "tokens a window", 1, kMaxCount);
  flags.Text("dtype", &a.dtype, "of the shards: uint16, uint32 or llm.c");
  flags.Real("lr", &a.run.train.lr, "peak learning rate");
  flags.Text("schedule", &a.schedule, "wsd, cosine, linear or constant");
  flags.Count("warmup-steps", &a.run.warmup_steps, "of rising rate", 0,
              kMaxSteps);
  flags.Real("decay-share", &a.run.train.decay_share,
             "wsd: the last share of the steps decays");
  flags.Real("min-lr", &a.run.train.min_lr, "as a factor of lr");
  flags.Real("weight-decay", &a.run.train.weight_decay, "of matrices");
  flags.Real("clip", &a.run.train.clip, "gradient norm; 0: no clipping");
  flags.Text("eval", &a.run.eval, "shard to evaluate on");
  flags.Count("eval-every", &a.run.eval_every, "steps; 0: only at the end");
  flags.Count("eval-tokens", &a.run.eval_tokens, "at most; 0: all");
  flags.Text("out", &a.run.out, "Hugging Face directory to write");
  flags.Text("tokenizer", &a.tokenizer, "tokenizer.model to copy into --out");
  flags.Count("threads", &a.threads, "of LibTorch; 1 is reproducible", 1,
              kMaxThreads);
  flags.Count("micro-batch", &a.micro_batch, "windows at a time; 0: all", 0,
              kMaxCount);
  flags.Text("device", &a.run.device, "cpu or cuda");
  flags.Count("log-every", &a.log_every, "steps between lines; 0: none");
  flags.Switch("json", &a.json, "end with one line of JSON");
  flags.Require("data");
}

absl::StatusOr<ScheduleShape> ParseShape(const std::string& name) {
  if (name == "wsd") return ScheduleShape::kWsd;
  if (name == "cosine") return ScheduleShape::kCosine;
  if (name == "linear") return ScheduleShape::kLinear;
  if (name == "constant") return ScheduleShape::kConstant;
  return absl::InvalidArgumentError(
      absl::StrCat("--schedule: \"", name,
                   "\" is not one of wsd, cosine, linear, constant"));
}

absl::Status Resolve(Arguments& a) {
  ModelConfig& model = a.run.model;
  if (a.model == "tiny") {
    model.layers = 4, model.hidden = 128, model.heads = 4, model.ffn = 344;
  } else if (a.model == "small") {
    model.layers = 6, model.hidden = 256, model.heads = 8, model.ffn = 688;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("--model: \"", a.model, "\" is not one of tiny, small"));
  }
  const auto change = [](uint64_t flag, int64_t& value) {
    if (flag > 0) value = static_cast<int64_t>(flag);
  };
  change(a.layers, model.layers);
  change(a.hidden, model.hidden);
  change(a.heads, model.heads);
  model.kv_heads = model.heads;
  change(a.kv_heads, model.kv_heads);
  change(a.ffn, model.ffn);
  model.vocab = static_cast<int64_t>(a.vocab);
  model.tied = a.tied;
  model.qk_norm = a.qk_norm;
  model.z_loss = a.z_loss;
  if (!a.tokenizer.empty() && a.run.out.empty()) {
    return absl::InvalidArgumentError(
        "--tokenizer is copied into --out, which is not given");
  }
  const TrainSettings& train = a.run.train;
  for (const auto& [flag, value] :
       {std::pair("lr", train.lr), std::pair("min-lr", train.min_lr),
        std::pair("weight-decay", train.weight_decay),
        std::pair("clip", train.clip), std::pair("z-loss", a.z_loss),
        std::pair("decay-share", train.decay_share)}) {
    // Also false for NaN.
    if (value >= 0 && value <= kMaxReal) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, " is ", value, ", expected 0 to ", kMaxReal));
  }
  a.run.train.seq_len = static_cast<uint32_t>(a.seq_len);
  ASSIGN_OR_RETURN(a.run.train.schedule, ParseShape(a.schedule));
  ASSIGN_OR_RETURN(a.run.format, ParseTokenFormat(a.dtype));
  a.run.data = absl::StrSplit(a.data, ',');
  if (!a.tokenizer.empty()) a.run.tokenizer_files = {a.tokenizer};
  a.run.threads = static_cast<int>(a.threads);
  a.run.micro_batch = static_cast<int64_t>(a.micro_batch);
  return absl::OkStatus();
}

void PrintStep(const Arguments& a, const LocalStep& step) {
  const bool due = a.log_every > 0 &&
                   (step.step % a.log_every == 0 || step.step == a.run.steps);
  if (!due && !step.eval.has_value() && !step.skipped) return;
  const double tokens = static_cast<double>(a.run.batch * a.seq_len);
  absl::FPrintF(stderr,
                "step %d/%d | loss %.4f | gnorm %.2f | lr %.2e | %.1f ms | "
                "%.0f tok/s",
                step.step, a.run.steps, step.loss, step.grad_norm, step.lr,
                step.seconds * 1e3, tokens / step.seconds);
  if (step.skipped) absl::FPrintF(stderr, " | skipped: not finite");
  if (step.eval.has_value()) {
    absl::FPrintF(stderr, " | val %.4f", step.eval->loss);
    if (step.eval->bits_per_byte.has_value()) {
      absl::FPrintF(stderr, " | bpb %.4f", *step.eval->bits_per_byte);
    }
  }
  absl::FPrintF(stderr, "\n");
}

std::string ReportJson(const LocalReport& report) {
  nlohmann::ordered_json json;
  json["steps"] = report.steps;
  json["skipped_steps"] = report.skipped;
  json["tokens"] = report.tokens;
  json["parameters"] = report.parameters;
  json["train_loss"] = report.train_loss;
  if (report.eval.has_value()) {
    json["eval_loss"] = report.eval->loss;
    json["eval_tokens"] = report.eval->tokens;
    json["perplexity"] = std::exp(report.eval->loss);
    if (report.eval->bits_per_byte.has_value()) {
      json["bits_per_byte"] = *report.eval->bits_per_byte;
    }
  }
  json["tokens_per_second"] = report.tokens_per_second;
  json["median_step_seconds"] = report.median_step_seconds;
  json["train_seconds"] = report.train_seconds;
  return json.dump();
}

}  // namespace

int RunTrainLocal(int argc, char** argv) {
  Arguments a;
  a.run.train.lr = 3e-3;
  a.run.steps = 100;
  Flags flags("train-local", "Trains on this machine alone.");
  DeclareFlags(a, flags);
  if (const auto code = flags.Parse(argc, argv)) return *code;
  if (const absl::Status status = Resolve(a); !status.ok()) {
    absl::FPrintF(stderr, "train-local: %s\n", status.message());
    return kExitUsage;
  }
  const absl::StatusOr<LocalReport> report =
      RunLocal(FileSystem::Posix(), Clock::Real(), a.run,
               [&](const LocalStep& step) { PrintStep(a, step); });
  if (!report.ok()) {
    absl::FPrintF(stderr, "train-local: %s\n", report.status().message());
    return ExitCodeOfTool(report.status());
  }
  if (a.json) absl::PrintF("%s\n", ReportJson(*report));
  return kExitOk;
}

}  // namespace diloco

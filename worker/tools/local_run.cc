// Implements local_run.h.
#include "worker/tools/local_run.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/data/dataset_manifest.h"
#include "common/model/hf_directory.h"
#include "common/model/initialiser.h"
#include "common/tensor/layout.h"
#include "worker/core/schedule.h"
#include "worker/data/token_dataset.h"
#include "worker/train/torch_trainer.h"

namespace diloco {
namespace {

constexpr uint64_t kEvalWindows = 16;  // At a time.

// Bytes of text per token of a shard; unset when no manifest lists it.
std::optional<double> BytesPerToken(FileSystem* fs, const std::string& path) {
  const auto manifest =
      ReadManifest(fs, JoinPath(DirName(path), kManifestName));
  if (!manifest.ok()) return std::nullopt;
  const DatasetManifest::Shard* shard =
      manifest->Find(path.substr(path.rfind('/') + 1));
  if (shard == nullptr || shard->tokens == 0 || shard->text_bytes == 0) {
    return std::nullopt;
  }
  return static_cast<double>(shard->text_bytes) /
         static_cast<double>(shard->tokens);
}

class LocalRun {
 public:
  LocalRun(FileSystem* fs, Clock* clock, const LocalRunOptions& options)
      : fs_(fs), clock_(clock), options_(options), train_(options.train) {}

  absl::StatusOr<LocalReport> Run(
      const std::function<void(const LocalStep&)>& on_step) {
    RETURN_IF_ERROR(Prepare());
    LocalReport report;
    report.parameters = layout_.parameters;
    std::vector<double> seconds;
    uint32_t skipped_in_row = 0;
    for (uint64_t index = 0; index < options_.steps; ++index) {
      ASSIGN_OR_RETURN(const LocalStep step, RunStep(index));
      report.steps = step.step;
      report.tokens += train_.batch_tokens;
      report.train_loss = step.loss;
      report.eval = step.eval;
      seconds.push_back(step.seconds);
      on_step(step);
      skipped_in_row = step.skipped ? skipped_in_row + 1 : 0;
      report.skipped += step.skipped ? 1 : 0;
      if (skipped_in_row >= train_.max_skipped_steps) {
        return absl::FailedPreconditionError(absl::StrCat(
            "step ", step.step, ": loss ", step.loss, ", gradient norm ",
            step.grad_norm, ": ", skipped_in_row,
            " steps in a row were not finite; a lower lr may help"));
      }
    }
    SumUpTime(seconds, report);
    if (!options_.out.empty()) RETURN_IF_ERROR(Export());
    return report;
  }

 private:
  absl::Status Prepare() {
    RETURN_IF_ERROR(PrepareModel());
    // Not after hours of training.
    if (!options_.out.empty()) {
      RETURN_IF_ERROR(TryHfDirectory(fs_, options_.out, Contents()));
    }
    if (options_.data.empty() || options_.batch % options_.data.size() != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a batch of ", options_.batch, " windows does not split evenly over ",
          options_.data.size(), " shards"));
    }
    for (const std::string& path : options_.data) {
      ASSIGN_OR_RETURN(TokenDataset dataset, OpenData(path));
      data_.push_back(std::move(dataset));
    }
    if (!options_.eval.empty()) {
      ASSIGN_OR_RETURN(TokenDataset dataset, OpenData(options_.eval));
      eval_.emplace(std::move(dataset));
      bytes_per_token_ = BytesPerToken(fs_, options_.eval);
    }
    train_.batch_tokens = options_.batch * train_.seq_len;
    train_.tokens = options_.steps * train_.batch_tokens;
    train_.warmup_tokens = options_.warmup_steps * train_.batch_tokens;
    ASSIGN_OR_RETURN(trainer_,
                     MakeTorchTrainer(config_, layout_, train_,
                                      {.threads = options_.threads,
                                       .micro_batch = options_.micro_batch,
                                       .device = options_.device}));
    return trainer_->Load(0, theta_);
  }

  absl::Status PrepareModel() {
    config_ = options_.model;
    if (!options_.init_dir.empty()) {
      ASSIGN_OR_RETURN(config_, ReadHfConfig(fs_, options_.init_dir));
    }
    if (config_.head_dim == 0)
      config_.head_dim = config_.hidden / config_.heads;
    if (config_.max_positions == 0) config_.max_positions = train_.seq_len;
    RETURN_IF_ERROR(ValidateModel(config_));
    if (train_.seq_len > config_.max_positions) {
      return absl::InvalidArgumentError(
          absl::StrCat("seq-len ", train_.seq_len, ", the model has ",
                       config_.max_positions, " positions"));
    }
    ASSIGN_OR_RETURN(layout_, BuildLayout(ModelTensors(config_), 1));
    theta_.resize(layout_.elements);
    return options_.init_dir.empty()
               ? InitialiseTheta(config_, layout_, options_.seed,
                                 absl::MakeSpan(theta_))
               : ReadHfWeights(fs_, options_.init_dir, config_, layout_,
                               absl::MakeSpan(theta_));
  }

  absl::StatusOr<TokenDataset> OpenData(const std::string& path) const {
    return TokenDataset::Open(fs_, path,
                              {.format = options_.format,
                               .seq_len = train_.seq_len,
                               .vocab = static_cast<uint64_t>(config_.vocab),
                               .seed = options_.seed});
  }

  Batch EmptyBatch(uint64_t windows) const {
    Batch batch;
    batch.windows = static_cast<int64_t>(windows);
    batch.ids_per_window = static_cast<int64_t>(train_.seq_len) + 1;
    return batch;
  }

  absl::StatusOr<LocalStep> RunStep(uint64_t index) {
    const uint64_t share = options_.batch / data_.size();
    const Instant start = clock_->Now();
    Batch batch = EmptyBatch(options_.batch);
    for (const TokenDataset& dataset : data_) {
      ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                       dataset.Next(index * share, share));
      batch.ids.insert(batch.ids.end(), ids.begin(), ids.end());
    }
    LocalStep step;
    step.step = index + 1;
    step.lr = LearningRate(
        train_,
        ProgressAtStep(0, 1.0 / static_cast<double>(options_.steps), index));
    ASSIGN_OR_RETURN(const StepResult result, trainer_->Step(batch, step.lr));
    step.seconds = absl::ToDoubleSeconds(clock_->Now() - start);
    step.loss = result.loss;
    step.grad_norm = result.grad_norm;
    step.skipped = result.skipped;
    const bool last = step.step == options_.steps;
    const bool due =
        options_.eval_every > 0 && step.step % options_.eval_every == 0;
    if (eval_.has_value() && (last || due)) {
      ASSIGN_OR_RETURN(step.eval, Evaluate());
    }
    return step;
  }

  absl::StatusOr<LocalEval> Evaluate() {
    uint64_t windows = eval_->windows();
    if (options_.eval_tokens > 0) {
      windows = std::min(
          windows,
          std::max<uint64_t>(options_.eval_tokens / train_.seq_len, 1));
    }
    LossSum total;
    for (uint64_t first = 0; first < windows; first += kEvalWindows) {
      Batch batch = EmptyBatch(std::min(kEvalWindows, windows - first));
      ASSIGN_OR_RETURN(
          batch.ids,
          eval_->InOrder(first, static_cast<uint64_t>(batch.windows)));
      ASSIGN_OR_RETURN(const LossSum sum, trainer_->Evaluate(batch));
      total.loss_sum += sum.loss_sum;
      total.tokens += sum.tokens;
    }
    LocalEval eval;
    eval.tokens = total.tokens;
    eval.loss = total.loss_sum / static_cast<double>(total.tokens);
    if (bytes_per_token_.has_value()) {
      eval.bits_per_byte = eval.loss / std::log(2.0) / *bytes_per_token_;
    }
    return eval;
  }

  void SumUpTime(std::vector<double> seconds, LocalReport& report) const {
    for (const double s : seconds) report.train_seconds += s;
    if (seconds.size() < 2) return;
    seconds.erase(seconds.begin());
    double warm = 0;
    for (const double s : seconds) warm += s;
    report.tokens_per_second =
        static_cast<double>(seconds.size() * train_.batch_tokens) / warm;
    const auto middle =
        seconds.begin() + static_cast<int64_t>(seconds.size() / 2);
    std::nth_element(seconds.begin(), middle, seconds.end());
    report.median_step_seconds = *middle;
  }

  HfExport Contents() const {
    HfExport contents;
    contents.config = config_;
    contents.layout = &layout_;
    contents.theta = theta_;
    contents.tokenizer_files = options_.tokenizer_files;
    return contents;
  }

  absl::Status Export() {
    RETURN_IF_ERROR(trainer_->ReadLocal(0, absl::MakeSpan(theta_)));
    return WriteHfDirectory(fs_, options_.out, Contents());
  }

  FileSystem* const fs_;
  Clock* const clock_;
  const LocalRunOptions& options_;
  TrainSettings train_;
  ModelConfig config_;
  Layout layout_;
  std::vector<float> theta_;
  std::vector<TokenDataset> data_;
  std::optional<TokenDataset> eval_;
  std::optional<double> bytes_per_token_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace

absl::StatusOr<LocalReport> RunLocal(
    FileSystem* fs, Clock* clock, const LocalRunOptions& options,
    const std::function<void(const LocalStep&)>& on_step) {
  return LocalRun(fs, clock, options).Run(on_step);
}

}  // namespace diloco

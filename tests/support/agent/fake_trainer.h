// A Trainer with known gradients: whole runs in milliseconds, no torch. The
// gradient of every parameter is local - target + a little of the batch's first
// id, and a running average of it is the optimiser's state: lost state, a wrong
// data position or a wrong base all change the result.
#ifndef TESTS_SUPPORT_AGENT_FAKE_TRAINER_H_
#define TESTS_SUPPORT_AGENT_FAKE_TRAINER_H_

#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "worker/train/trainer.h"

namespace diloco {

class FakeTrainer final : public Trainer {
 public:
  FakeTrainer(Layout layout, float target)
      : layout_(std::move(layout)), target_(target) {
    const auto n = static_cast<size_t>(layout_.elements);
    local_.resize(n);
    anchor_.resize(n);
    average_.resize(n);
    taken_.resize(layout_.fragments.size());
  }

  ~FakeTrainer() override {
    if (keep_ != nullptr) *keep_ = anchor_;
  }

  // From the n-th step on (1-based) the local values turn NaN after the step.
  void PoisonAtStep(uint64_t step) { poison_at_ = step; }
  // After the n-th step one local value is moved by `amount`, once.
  void SpikeAtStep(uint64_t step, float amount) {
    spike_at_ = step;
    spike_ = amount;
  }
  // Appends rate and windows of each step to `log`, which outlives this
  // trainer.
  void LogSteps(std::vector<std::pair<double, int64_t>>* log) { log_ = log; }
  // Appends to `log` at each take how many steps the local values are away
  // from the anchor; `log` outlives this trainer.
  void LogTakes(std::vector<uint32_t>* log) { takes_ = log; }
  // Steps first to last (1-based) are skipped as not finite.
  void SkipSteps(uint64_t first, uint64_t last) {
    skip_first_ = first;
    skip_last_ = last;
  }
  // The step follows the gradient itself instead of its running average.
  void UsePlainSgd() { plain_sgd_ = true; }
  // Called before each step, for the time that it is to take.
  void SpendBeforeStep(std::function<void()> spend) {
    spend_ = std::move(spend);
  }
  // The optimiser's state of a checkpoint is not taken over.
  void StartCold() { cold_ = true; }
  // The anchor is copied there when this trainer ends.
  void KeepAnchor(std::vector<float>* out) { keep_ = out; }
  // Counts steps; `count` outlives this trainer.
  void CountSteps(std::atomic<uint64_t>* count) { step_count_ = count; }
  // EvaluateAnchor finds a loss that is wrong by this factor.
  void DisturbEvaluations(double factor) { disturbed_ = factor; }
  // Counts calls of EvaluateAnchor; `count` outlives this trainer.
  void CountEvaluations(std::atomic<int>* count) { evaluations_ = count; }
  std::vector<float>& anchor() { return anchor_; }

  const Layout& layout() const override { return layout_; }
  absl::StatusOr<StepResult> Step(const Batch& batch, double lr) override;
  absl::StatusOr<LossSum> Evaluate(const Batch& batch) override;
  absl::StatusOr<LossSum> EvaluateAnchor(const Batch& batch) override;
  absl::Status Load(uint32_t fragment, absl::Span<const float> values) override;
  absl::Status Adopt(uint32_t fragment, absl::Span<const float> values,
                     MergeMode mode, float mix) override;
  absl::StatusOr<Ticket> Take(uint32_t fragment) override;
  absl::Status Encode(Ticket ticket, PartWriter& writer) override;
  absl::Status Merge(uint32_t fragment, const PartReader& change,
                     MergeMode mode, float mix) override;
  Digest AnchorDigest(uint32_t fragment) override;
  absl::Status ReadAnchor(uint32_t fragment, absl::Span<float> out) override;
  absl::Status ReadLocal(uint32_t fragment, absl::Span<float> out) override;
  absl::Status ExportState(const StateSink& sink) override;
  absl::Status ImportState(absl::string_view name,
                           absl::Span<const float> values) override;
  uint64_t optimizer_steps() const override { return steps_; }
  void set_optimizer_steps(uint64_t steps) override { steps_ = steps; }

 private:
  absl::Span<float> Range(uint32_t fragment, std::vector<float>& flat) const {
    const FragmentSpec& spec = layout_.fragments[fragment];
    return absl::MakeSpan(flat).subspan(static_cast<size_t>(spec.first),
                                        static_cast<size_t>(spec.elements));
  }

  const Layout layout_;
  const float target_;
  uint64_t poison_at_ = 0;
  uint64_t spike_at_ = 0;
  float spike_ = 0;
  uint64_t skip_first_ = 0;
  uint64_t skip_last_ = 0;
  bool plain_sgd_ = false;
  bool cold_ = false;
  std::vector<float>* keep_ = nullptr;
  std::atomic<int>* evaluations_ = nullptr;
  double disturbed_ = 1;
  std::function<void()> spend_;
  std::atomic<uint64_t>* step_count_ = nullptr;
  std::vector<uint32_t>* takes_ = nullptr;
  std::vector<std::pair<double, int64_t>>* log_ = nullptr;
  uint32_t steps_off_anchor_ = 0;
  uint64_t steps_ = 0;
  std::vector<float> local_, anchor_, average_;
  std::vector<std::vector<float>> taken_;  // By fragment.
};

}  // namespace diloco

#endif  // TESTS_SUPPORT_AGENT_FAKE_TRAINER_H_

// A trainer whose steps take virtual time, and which knows of each update the
// steps it is made of.
#ifndef TESTS_SIM_SIM_TRAINER_H_
#define TESTS_SIM_SIM_TRAINER_H_

#include <functional>
#include <vector>

#include "tests/support/agent/fake_trainer.h"

namespace diloco::sim {

// Numbers of steps, in the order in which a worker has made them.
using StepIds = std::vector<uint64_t>;

class SimTrainer final : public Trainer {
 public:
  struct Hooks {
    std::function<void()> spend;                    // The time of a step.
    std::function<uint64_t(uint64_t tokens)> note;  // A step: its number.
    std::function<void(const StepIds&)> found;      // In a checkpoint.
    bool keep_delivered = false;                    // A planted defect.
  };
  SimTrainer(const Layout& layout, float target, Hooks hooks)
      : inner_(layout, target), hooks_(std::move(hooks)) {}

  // Of what was taken last, and of what was not taken yet.
  const StepIds& taken() const { return taken_; }
  const StepIds& window() const { return window_; }

  const Layout& layout() const override { return inner_.layout(); }
  absl::StatusOr<StepResult> Step(const Batch& batch, double lr) override {
    hooks_.spend();
    absl::StatusOr<StepResult> result = inner_.Step(batch, lr);
    // One at rate 0 is a probe's, and no work.
    if (result.ok() && lr > 0) window_.push_back(hooks_.note(result->tokens));
    return result;
  }
  absl::StatusOr<LossSum> Evaluate(const Batch& batch) override {
    return inner_.Evaluate(batch);
  }
  absl::StatusOr<LossSum> EvaluateAnchor(const Batch& batch) override {
    return inner_.EvaluateAnchor(batch);
  }
  absl::Status Load(uint32_t fragment,
                    absl::Span<const float> values) override {
    window_.clear();
    return inner_.Load(fragment, values);
  }
  absl::Status Adopt(uint32_t fragment, absl::Span<const float> values,
                     MergeMode mode, float mix) override {
    if (mode == MergeMode::kMix) window_.clear();
    return inner_.Adopt(fragment, values, mode, mix);
  }
  absl::StatusOr<Ticket> Take(uint32_t fragment) override {
    taken_ = window_;
    return inner_.Take(fragment);
  }
  absl::Status Encode(Ticket ticket, PartWriter& writer) override {
    return inner_.Encode(ticket, writer);
  }
  absl::Status Merge(uint32_t fragment, const PartReader& change,
                     MergeMode mode, float mix) override {
    if (hooks_.keep_delivered) mode = MergeMode::kCarry;
    if (mode == MergeMode::kMix) window_.clear();
    return inner_.Merge(fragment, change, mode, mix);
  }
  Digest AnchorDigest(uint32_t fragment) override {
    return inner_.AnchorDigest(fragment);
  }
  absl::Status ReadAnchor(uint32_t fragment, absl::Span<float> out) override {
    return inner_.ReadAnchor(fragment, out);
  }
  absl::Status ReadLocal(uint32_t fragment, absl::Span<float> out) override {
    return inner_.ReadLocal(fragment, out);
  }
  // The numbers travel with the checkpoint, in two exact halves each.
  absl::Status ExportState(const StateSink& sink) override {
    const absl::Status status = inner_.ExportState(sink);
    if (!status.ok()) return status;
    std::vector<float> numbers;
    for (const uint64_t id : window_) {
      numbers.push_back(static_cast<float>(id >> 20));
      numbers.push_back(static_cast<float>(id & 0xfffff));
    }
    return sink("steps", numbers);
  }
  absl::Status ImportState(absl::string_view name,
                           absl::Span<const float> values) override {
    if (name != "steps") return inner_.ImportState(name, values);
    window_.clear();
    for (size_t i = 0; i + 1 < values.size(); i += 2) {
      window_.push_back(static_cast<uint64_t>(values[i]) << 20 |
                        static_cast<uint64_t>(values[i + 1]));
    }
    hooks_.found(window_);
    return absl::OkStatus();
  }
  uint64_t optimizer_steps() const override { return inner_.optimizer_steps(); }
  void set_optimizer_steps(uint64_t steps) override {
    inner_.set_optimizer_steps(steps);
  }

 private:
  FakeTrainer inner_;
  const Hooks hooks_;
  StepIds window_;
  StepIds taken_;
};

}  // namespace diloco::sim

#endif  // TESTS_SIM_SIM_TRAINER_H_

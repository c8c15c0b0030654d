// A trainer whose steps take virtual time, and which knows of each update the
// steps it is made of.
#ifndef TESTS_SIM_SIM_TRAINER_H_
#define TESTS_SIM_SIM_TRAINER_H_

#include <functional>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
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
      : inner_(layout, target),
        hooks_(std::move(hooks)),
        windows_(layout.fragments.size()),
        taken_(layout.fragments.size()) {}

  // Of what was taken of a fragment last and is not merged yet, and of all that
  // is not merged.
  const StepIds& taken(uint32_t fragment) const { return taken_[fragment]; }
  const StepIds& window(uint32_t fragment) const { return windows_[fragment]; }
  // The steps in any window.
  StepIds unsent() const {
    std::set<uint64_t> all;
    for (const StepIds& window : windows_) {
      all.insert(window.begin(), window.end());
    }
    return StepIds(all.begin(), all.end());
  }

  const Layout& layout() const override { return inner_.layout(); }
  absl::StatusOr<StepResult> Step(const Batch& batch, double lr) override {
    hooks_.spend();
    absl::StatusOr<StepResult> result = inner_.Step(batch, lr);
    // One at rate 0 is a probe's, and no work.
    if (result.ok() && lr > 0) {
      const uint64_t step = hooks_.note(result->tokens);
      for (StepIds& window : windows_) window.push_back(step);
    }
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
    windows_[fragment].clear();
    taken_[fragment].clear();
    return inner_.Load(fragment, values);
  }
  absl::Status Adopt(uint32_t fragment, absl::Span<const float> values,
                     MergeMode mode, float mix) override {
    if (mode == MergeMode::kMix) Merged(fragment, mix);
    return inner_.Adopt(fragment, values, mode, mix);
  }
  absl::StatusOr<Ticket> Take(uint32_t fragment) override {
    taken_[fragment] = windows_[fragment];
    return inner_.Take(fragment);
  }
  absl::Status Encode(Ticket ticket, PartWriter& writer) override {
    return inner_.Encode(ticket, writer);
  }
  absl::Status Merge(uint32_t fragment, const PartReader& change,
                     MergeMode mode, float mix) override {
    if (hooks_.keep_delivered) mode = MergeMode::kCarry;
    if (mode == MergeMode::kMix) Merged(fragment, mix);
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
    for (size_t f = 0; f < windows_.size(); ++f) {
      const absl::Status steps =
          sink(absl::StrCat("steps ", f), Numbers(windows_[f]));
      if (!steps.ok()) return steps;
      const absl::Status taken =
          sink(absl::StrCat("taken ", f), Numbers(taken_[f]));
      if (!taken.ok()) return taken;
    }
    return absl::OkStatus();
  }
  absl::Status ImportState(absl::string_view name,
                           absl::Span<const float> values) override {
    for (size_t f = 0; f < windows_.size(); ++f) {
      if (name == absl::StrCat("taken ", f)) {
        taken_[f] = IdsOf(values);
        return absl::OkStatus();
      }
      if (name == absl::StrCat("steps ", f)) {
        windows_[f] = IdsOf(values);
        hooks_.found(windows_[f]);
        return absl::OkStatus();
      }
    }
    return inner_.ImportState(name, values);
  }
  uint64_t optimizer_steps() const override { return inner_.optimizer_steps(); }
  void set_optimizer_steps(uint64_t steps) override {
    inner_.set_optimizer_steps(steps);
  }

 private:
  // What was taken is folded; with no share of the local values nothing of
  // what came after it is left either.
  void Merged(uint32_t fragment, float mix) {
    StepIds& window = windows_[fragment];
    StepIds& taken = taken_[fragment];
    if (mix > 0 && !taken.empty()) {
      window.erase(window.begin(),
                   window.begin() + static_cast<int64_t>(taken.size()));
    } else {
      window.clear();
    }
    taken.clear();
  }
  static std::vector<float> Numbers(const StepIds& ids) {
    std::vector<float> numbers;
    for (const uint64_t id : ids) {
      numbers.push_back(static_cast<float>(id >> 20));
      numbers.push_back(static_cast<float>(id & 0xfffff));
    }
    return numbers;
  }
  static StepIds IdsOf(absl::Span<const float> values) {
    StepIds ids;
    for (size_t i = 0; i + 1 < values.size(); i += 2) {
      ids.push_back(static_cast<uint64_t>(values[i]) << 20 |
                    static_cast<uint64_t>(values[i + 1]));
    }
    return ids;
  }

  FakeTrainer inner_;
  const Hooks hooks_;
  std::vector<StepIds> windows_;  // By fragment.
  std::vector<StepIds> taken_;
};

}  // namespace diloco::sim

#endif  // TESTS_SIM_SIM_TRAINER_H_

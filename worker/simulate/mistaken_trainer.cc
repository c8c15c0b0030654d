#include "worker/simulate/mistaken_trainer.h"

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace diloco::sim {
namespace {

class MistakenTrainer final : public Trainer {
 public:
  MistakenTrainer(const Mistake& mistake, std::unique_ptr<Trainer> right)
      : mistake_(mistake), right_(std::move(right)) {}

  absl::Status Merge(uint32_t fragment, const PartReader& change,
                     MergeMode mode, float mix) override {
    Spoil(fragment, mode, mix);
    RETURN_IF_ERROR(right_->Merge(fragment, change, mode, mix));
    return AfterMerge();
  }
  absl::Status Adopt(uint32_t fragment, absl::Span<const float> values,
                     MergeMode mode, float mix) override {
    Spoil(fragment, mode, mix);
    RETURN_IF_ERROR(right_->Adopt(fragment, values, mode, mix));
    return AfterMerge();
  }

  const Layout& layout() const override { return right_->layout(); }
  absl::StatusOr<StepResult> Step(const Batch& batch, double lr) override {
    return right_->Step(batch, lr);
  }
  absl::StatusOr<LossSum> Evaluate(const Batch& batch) override {
    return right_->Evaluate(batch);
  }
  absl::StatusOr<LossSum> EvaluateAnchor(const Batch& batch) override {
    return right_->EvaluateAnchor(batch);
  }
  absl::Status Load(uint32_t fragment,
                    absl::Span<const float> values) override {
    return right_->Load(fragment, values);
  }
  absl::StatusOr<Ticket> Take(uint32_t fragment) override {
    return right_->Take(fragment);
  }
  absl::Status Encode(Ticket ticket, PartWriter& writer) override {
    return right_->Encode(ticket, writer);
  }
  Digest AnchorDigest(uint32_t fragment) override {
    return right_->AnchorDigest(fragment);
  }
  absl::Status ReadAnchor(uint32_t fragment, absl::Span<float> out) override {
    return right_->ReadAnchor(fragment, out);
  }
  absl::Status ReadLocal(uint32_t fragment, absl::Span<float> out) override {
    return right_->ReadLocal(fragment, out);
  }
  absl::Status ExportState(const StateSink& sink) override {
    return right_->ExportState(sink);
  }
  absl::Status ImportState(absl::string_view name,
                           absl::Span<const float> values) override {
    return right_->ImportState(name, values);
  }
  uint64_t optimizer_steps() const override {
    return right_->optimizer_steps();
  }
  void set_optimizer_steps(uint64_t steps) override {
    right_->set_optimizer_steps(steps);
  }

 private:
  void Spoil(uint32_t fragment, MergeMode& mode, float& mix) const {
    if (!mistake_.no_merge || mistake_.fragment.value_or(fragment) != fragment)
      return;
    mode = MergeMode::kMix;
    mix = 1;
  }

  absl::Status AfterMerge() {
    if (!mistake_.reset_adamw) return absl::OkStatus();
    const std::vector<float> zeros(static_cast<size_t>(layout().elements));
    for (const char* name : {"exp_avg", "exp_avg_sq"}) {
      RETURN_IF_ERROR(right_->ImportState(name, zeros));
    }
    right_->set_optimizer_steps(0);
    return absl::OkStatus();
  }

  const Mistake mistake_;
  const std::unique_ptr<Trainer> right_;
};

}  // namespace

absl::StatusOr<Mistake> ParseMistake(absl::string_view text) {
  Mistake mistake;
  absl::string_view rest = text;
  if (text == "reset-adamw") {
    mistake.reset_adamw = true;
    return mistake;
  }
  if (text == "no-merge") {
    mistake.no_merge = true;
    return mistake;
  }
  uint32_t fragment = 0;
  if (absl::ConsumePrefix(&rest, "no-merge:") &&
      absl::SimpleAtoi(rest, &fragment)) {
    mistake.no_merge = true;
    mistake.fragment = fragment;
    return mistake;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("DILOCO_TEST_MISTAKE=", text,
                   ": expected reset-adamw, no-merge or no-merge:FRAGMENT"));
}

std::unique_ptr<Trainer> MakeMistakenTrainer(const Mistake& mistake,
                                             std::unique_ptr<Trainer> right) {
  return std::make_unique<MistakenTrainer>(mistake, std::move(right));
}

}  // namespace diloco::sim

#include "tests/support/agent/fake_trainer.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/flat_math.h"

namespace diloco {
namespace {

LossSum SumOf(const std::vector<float>& values, const Batch& batch) {
  LossSum sum;
  sum.tokens =
      static_cast<uint64_t>(batch.windows * (batch.ids_per_window - 1));
  const double error = values[0] - 1.0;
  sum.loss_sum = error * error * static_cast<double>(sum.tokens);
  return sum;
}

}  // namespace

absl::StatusOr<StepResult> FakeTrainer::Step(const Batch& batch, double lr) {
  if (spend_) spend_();
  ++steps_;
  ++steps_off_anchor_;
  if (step_count_ != nullptr) ++*step_count_;
  if (log_ != nullptr) log_->push_back({lr, batch.windows});
  const float nudge = static_cast<float>(batch.ids[0]) * 1e-3f;
  StepResult result;
  result.tokens =
      static_cast<uint64_t>(batch.windows * (batch.ids_per_window - 1));
  if (steps_ >= skip_first_ && steps_ <= skip_last_) {
    result.loss = result.grad_norm = std::numeric_limits<double>::quiet_NaN();
    result.skipped = true;
    return result;
  }
  for (const TensorSpec& tensor : layout_.tensors) {
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.elements; ++i) {
      const auto at = static_cast<size_t>(i);
      const float gradient = local_[at] - target_ + nudge;
      result.loss += 0.5 * static_cast<double>(gradient) * gradient;
      average_[at] =
          plain_sgd_ ? gradient : 0.5f * average_[at] + 0.5f * gradient;
      local_[at] -= static_cast<float>(lr) * average_[at];
      if (poison_at_ != 0 && steps_ >= poison_at_) {
        local_[at] = std::numeric_limits<float>::quiet_NaN();
      }
    }
  }
  if (steps_ == spike_at_) local_[0] += spike_;
  result.loss /= static_cast<double>(layout_.parameters);
  result.grad_norm = 1;
  return result;
}

absl::StatusOr<LossSum> FakeTrainer::Evaluate(const Batch& batch) {
  return SumOf(local_, batch);
}

absl::StatusOr<LossSum> FakeTrainer::EvaluateAnchor(const Batch& batch) {
  if (evaluations_ != nullptr) ++*evaluations_;
  LossSum sum = SumOf(anchor_, batch);
  sum.loss_sum *= disturbed_;
  return sum;
}

absl::Status FakeTrainer::Load(uint32_t fragment,
                               absl::Span<const float> values) {
  const absl::Span<float> local = Range(fragment, local_);
  if (values.size() != local.size()) {
    return absl::InvalidArgumentError("size differs");
  }
  std::copy(values.begin(), values.end(), local.begin());
  std::copy(values.begin(), values.end(), Range(fragment, anchor_).begin());
  steps_off_anchor_ = 0;
  return absl::OkStatus();
}

absl::Status FakeTrainer::Adopt(uint32_t fragment,
                                absl::Span<const float> values, MergeMode mode,
                                float mix) {
  const absl::Span<float> local = Range(fragment, local_);
  const absl::Span<float> anchor = Range(fragment, anchor_);
  if (values.size() != local.size()) {
    return absl::InvalidArgumentError("size differs");
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (mode == MergeMode::kCarry) local[i] += values[i] - anchor[i];
    anchor[i] = values[i];
  }
  if (mode == MergeMode::kMix) {
    steps_off_anchor_ = 0;
    MixInto(mix, anchor, local);
  }
  return absl::OkStatus();
}

absl::StatusOr<Trainer::Ticket> FakeTrainer::Take(uint32_t fragment) {
  const absl::Span<float> local = Range(fragment, local_);
  const absl::Span<float> anchor = Range(fragment, anchor_);
  if (takes_ != nullptr) takes_->push_back(steps_off_anchor_);
  std::vector<float>& taken = taken_[fragment];
  taken.resize(local.size());
  for (size_t i = 0; i < local.size(); ++i) taken[i] = anchor[i] - local[i];
  return Ticket{fragment};
}

absl::Status FakeTrainer::Encode(Ticket ticket, PartWriter& writer) {
  const absl::Span<const float> all = taken_[ticket.fragment];
  for (size_t at = 0; at < all.size(); at += kFrameElements) {
    RETURN_IF_ERROR(writer.Append(all.subspan(at, kFrameElements)));
  }
  return absl::OkStatus();
}

absl::Status FakeTrainer::Merge(uint32_t fragment, const PartReader& change,
                                MergeMode mode, float mix) {
  const absl::Span<float> local = Range(fragment, local_);
  const absl::Span<float> anchor = Range(fragment, anchor_);
  std::vector<float> values(static_cast<size_t>(change.header().elements));
  for (int64_t i = 0; i < change.frames(); ++i) {
    RETURN_IF_ERROR(
        change.ReadFrame(i, absl::MakeSpan(values).subspan(
                                static_cast<size_t>(i * kFrameElements),
                                static_cast<size_t>(change.FrameElements(i)))));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    anchor[i] += values[i];
    if (mode == MergeMode::kCarry) local[i] += values[i];
  }
  if (mode == MergeMode::kMix) {
    steps_off_anchor_ = 0;
    MixInto(mix, anchor, local);
  }
  return absl::OkStatus();
}

Digest FakeTrainer::AnchorDigest(uint32_t fragment) {
  return DigestOfValues(Range(fragment, anchor_));
}

absl::Status FakeTrainer::ReadAnchor(uint32_t fragment, absl::Span<float> out) {
  const absl::Span<float> anchor = Range(fragment, anchor_);
  std::copy(anchor.begin(), anchor.end(), out.begin());
  return absl::OkStatus();
}

absl::Status FakeTrainer::ReadLocal(uint32_t fragment, absl::Span<float> out) {
  const absl::Span<float> local = Range(fragment, local_);
  std::copy(local.begin(), local.end(), out.begin());
  return absl::OkStatus();
}

absl::Status FakeTrainer::ExportState(const StateSink& sink) {
  RETURN_IF_ERROR(sink("local", local_));
  RETURN_IF_ERROR(sink("anchor", anchor_));
  return sink("average", average_);
}

absl::Status FakeTrainer::ImportState(absl::string_view name,
                                      absl::Span<const float> values) {
  for (const auto& [known, buffer] :
       {std::pair{"local", &local_}, std::pair{"anchor", &anchor_},
        std::pair{"average", &average_}}) {
    if (name == known && values.size() == buffer->size()) {
      if (cold_ && name == "average") return absl::OkStatus();
      buffer->assign(values.begin(), values.end());
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("no buffer ", name));
}

}  // namespace diloco

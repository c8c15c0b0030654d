// Implements torch_trainer.h.
#include "worker/train/torch_trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/tensor/flat_math.h"
#include "worker/train/adamw.h"
#include "worker/train/batch_tensors.h"
#include "worker/train/device.h"
#include "worker/train/flat_params.h"
#include "worker/train/torch_guard.h"
#include "worker/train/torch_headers.h"
#include "worker/train/transformer.h"

namespace diloco {
namespace {

class TorchTrainer final : public Trainer {
 public:
  TorchTrainer(const ModelConfig& model, const Layout& layout,
               const TrainSettings& train, const TorchOptions& options,
               at::Device device)
      : model_(model),
        layout_(layout),
        train_(train),
        options_(options),
        device_(device),
        params_(layout_, device, /*with_grads=*/true),
        transformer_(model, params_),
        optimizer_(train, layout_, params_),
        anchor_(layout_.elements),
        theta_(layout_,
               at::from_blob(anchor_.data(), {layout_.elements}, at::kFloat)
                   .to(device)),
        theta_transformer_(model, theta_),
        taken_(layout_.fragments.size()) {}

  const Layout& layout() const override { return layout_; }

  absl::StatusOr<StepResult> Step(const Batch& batch, double lr) override {
    return Guarded("training step", [&]() -> absl::StatusOr<StepResult> {
      RETURN_IF_ERROR(CheckBatch(model_, batch));
      return RunStep(batch, lr);
    });
  }

  absl::StatusOr<LossSum> Evaluate(const Batch& batch) override {
    return SumLoss(transformer_, batch);
  }

  absl::StatusOr<LossSum> EvaluateAnchor(const Batch& batch) override {
    if (!device_.is_cpu()) {
      RETURN_IF_ERROR(Guarded("evaluation", [&] {
        CopyIn(anchor_, theta_.values());
        return absl::OkStatus();
      }));
    }
    return SumLoss(theta_transformer_, batch);
  }

  absl::Status Load(uint32_t fragment,
                    absl::Span<const float> values) override {
    RETURN_IF_ERROR(CheckFragment(fragment, values.size()));
    std::copy(values.begin(), values.end(), AnchorOf(fragment).begin());
    return Guarded("load", [&] { return WriteLocal(fragment, values); });
  }

  absl::StatusOr<Ticket> Take(uint32_t fragment) override {
    RETURN_IF_ERROR(CheckFragment(fragment));
    std::vector<float>& delta = taken_[fragment];
    if (!delta.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "fragment ", fragment, " is taken already and not yet encoded"));
    }
    const absl::Span<const float> anchor = AnchorOf(fragment);
    delta.resize(anchor.size());
    RETURN_IF_ERROR(Guarded(
        "take", [&] { return CopyLocal(fragment, absl::MakeSpan(delta)); }));
    for (size_t i = 0; i < delta.size(); ++i) delta[i] = anchor[i] - delta[i];
    return Ticket{fragment};
  }

  absl::Status Encode(Ticket ticket, PartWriter& writer) override {
    RETURN_IF_ERROR(CheckFragment(ticket.fragment));
    std::vector<float> delta = std::move(taken_[ticket.fragment]);
    taken_[ticket.fragment].clear();
    if (delta.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("fragment ", ticket.fragment, " is not taken"));
    }
    const absl::Span<const float> all = delta;
    for (size_t first = 0; first < all.size(); first += kFrameElements) {
      RETURN_IF_ERROR(writer.Append(all.subspan(first, kFrameElements)));
    }
    return absl::OkStatus();
  }

  absl::Status Merge(uint32_t fragment, const PartReader& change,
                     MergeMode mode, float mix) override {
    RETURN_IF_ERROR(CheckChange(fragment, change));
    const absl::Span<float> anchor = AnchorOf(fragment);
    std::vector<float> frame(std::min<size_t>(kFrameElements, anchor.size()));
    for (int64_t i = 0; i < change.frames(); ++i) {
      RETURN_IF_ERROR(change.ReadFrame(i, FrameSpan(change, i, frame)));
    }
    const bool replace = mode == MergeMode::kMix && mix == 0;
    std::vector<float> local;
    if (!replace) {
      local.resize(anchor.size());
      RETURN_IF_ERROR(Guarded(
          "merge", [&] { return CopyLocal(fragment, absl::MakeSpan(local)); }));
    }
    for (int64_t i = 0; i < change.frames(); ++i) {
      const absl::Span<float> values = FrameSpan(change, i, frame);
      RETURN_IF_ERROR(change.ReadFrame(i, values));
      const size_t first = i * kFrameElements;
      for (size_t j = 0; j < values.size(); ++j) {
        anchor[first + j] += values[j];
      }
      if (mode == MergeMode::kMix) continue;
      for (size_t j = 0; j < values.size(); ++j) local[first + j] += values[j];
    }
    if (mode == MergeMode::kMix && !replace) {
      MixInto(mix, anchor, absl::MakeSpan(local));
    }
    return Guarded("merge", [&] {
      return WriteLocal(fragment, replace ? absl::Span<const float>(anchor)
                                          : absl::Span<const float>(local));
    });
  }

  absl::Status Adopt(uint32_t fragment, absl::Span<const float> values,
                     MergeMode mode, float mix) override {
    if (mode == MergeMode::kMix && mix == 0) return Load(fragment, values);
    RETURN_IF_ERROR(CheckFragment(fragment, values.size()));
    const absl::Span<float> anchor = AnchorOf(fragment);
    std::vector<float> local(anchor.size());
    RETURN_IF_ERROR(Guarded(
        "adopt", [&] { return CopyLocal(fragment, absl::MakeSpan(local)); }));
    if (mode == MergeMode::kMix) {
      MixInto(mix, values, absl::MakeSpan(local));
    } else {
      for (size_t i = 0; i < local.size(); ++i) {
        local[i] += values[i] - anchor[i];
      }
    }
    std::copy(values.begin(), values.end(), anchor.begin());
    return Guarded("adopt", [&] { return WriteLocal(fragment, local); });
  }

  Digest AnchorDigest(uint32_t fragment) override {
    DILOCO_CHECK(fragment < layout_.fragments.size()) << fragment;
    return DigestOfValues(AnchorOf(fragment));
  }

  absl::Status ReadAnchor(uint32_t fragment, absl::Span<float> out) override {
    RETURN_IF_ERROR(CheckFragment(fragment, out.size()));
    const absl::Span<const float> anchor = AnchorOf(fragment);
    std::copy(anchor.begin(), anchor.end(), out.begin());
    return absl::OkStatus();
  }

  absl::Status ReadLocal(uint32_t fragment, absl::Span<float> out) override {
    RETURN_IF_ERROR(CheckFragment(fragment, out.size()));
    return Guarded("read", [&] { return CopyLocal(fragment, out); });
  }

  absl::Status ExportState(const StateSink& sink) override {
    RETURN_IF_ERROR(sink("anchor", anchor_));
    for (const char* name : {"local", "exp_avg", "exp_avg_sq"}) {
      at::Tensor host;
      RETURN_IF_ERROR(Guarded("export", [&] {
        host = StateTensor(name)->to(at::kCPU);
        return absl::OkStatus();
      }));
      RETURN_IF_ERROR(
          sink(name, absl::MakeConstSpan(host.data_ptr<float>(),
                                         static_cast<size_t>(host.numel()))));
    }
    return absl::OkStatus();
  }

  absl::Status ImportState(absl::string_view name,
                           absl::Span<const float> values) override {
    if (static_cast<int64_t>(values.size()) != layout_.elements) {
      return absl::InvalidArgumentError(
          absl::StrCat("trainer state \"", name, "\" has ", values.size(),
                       " values, the model's layout has ", layout_.elements));
    }
    if (name == "anchor") {
      std::copy(values.begin(), values.end(), anchor_.begin());
      return absl::OkStatus();
    }
    const at::Tensor* tensor = StateTensor(name);
    if (tensor == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("trainer state has no buffer \"", name,
                       "\"; known: anchor, local, exp_avg, exp_avg_sq"));
    }
    return Guarded("import", [&] {
      CopyIn(values, *tensor);
      return absl::OkStatus();
    });
  }

  uint64_t optimizer_steps() const override { return optimizer_.steps(); }
  void set_optimizer_steps(uint64_t steps) override {
    optimizer_.set_steps(steps);
  }

 private:
  template <typename Visit>
  void ForMicroBatches(const Batch& batch, Visit&& visit) {
    const int64_t most =
        options_.micro_batch > 0 ? options_.micro_batch : batch.windows;
    for (int64_t first = 0; first < batch.windows; first += most) {
      const int64_t windows = std::min(most, batch.windows - first);
      if (CountedPredictions(batch, first, windows) == 0) continue;
      visit(MakeInputs(batch, first, windows, device_));
    }
  }

  absl::StatusOr<LossSum> SumLoss(Transformer& transformer,
                                  const Batch& batch) {
    return Guarded("evaluation", [&]() -> absl::StatusOr<LossSum> {
      RETURN_IF_ERROR(CheckBatch(model_, batch));
      LossSum sum;
      sum.tokens = CountedPredictions(batch, 0, batch.windows);
      ForMicroBatches(batch, [&](const Transformer::Inputs& inputs) {
        sum.loss_sum += transformer.Loss(inputs).cross_entropy;
      });
      return sum;
    });
  }

  StepResult RunStep(const Batch& batch, double lr) {
    StepResult result;
    result.tokens = CountedPredictions(batch, 0, batch.windows);
    if (result.tokens == 0) {
      result.skipped = true;
      return result;
    }
    const double scale = 1.0 / static_cast<double>(result.tokens);
    params_.grads().zero_();
    ForMicroBatches(batch, [&](const Transformer::Inputs& inputs) {
      const LossTotals totals = transformer_.LossAndGradient(inputs, scale);
      result.loss += totals.cross_entropy * scale;
      result.z_loss += totals.z_loss * scale;
    });
    result.grad_norm = GradientNorm(params_.grads());
    if (!std::isfinite(result.grad_norm) || !std::isfinite(result.loss)) {
      result.skipped = true;
      return result;
    }
    if (train_.clip > 0) {
      const double factor = train_.clip / (result.grad_norm + 1e-6);
      if (factor < 1) params_.grads().mul_(factor);
    }
    optimizer_.Step(lr);
    return result;
  }

  absl::Status CheckFragment(uint32_t fragment) const {
    if (fragment < layout_.fragments.size()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("fragment ", fragment, " of ", layout_.fragments.size()));
  }

  absl::Status CheckFragment(uint32_t fragment, size_t elements) const {
    RETURN_IF_ERROR(CheckFragment(fragment));
    const int64_t expected = layout_.fragments[fragment].elements;
    if (static_cast<int64_t>(elements) == expected) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("fragment ", fragment, " has ", expected,
                     " elements, the buffer ", elements));
  }

  absl::Status CheckChange(uint32_t fragment, const PartReader& change) const {
    const PartHeader& header = change.header();
    RETURN_IF_ERROR(
        CheckFragment(fragment, static_cast<size_t>(header.elements)));
    if (header.fragment != fragment || header.first_element != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("update blob of fragment ", header.fragment,
                       " from element ", header.first_element,
                       ", expected fragment ", fragment, " from element 0"));
    }
    return absl::OkStatus();
  }

  static absl::Span<float> FrameSpan(const PartReader& change, int64_t index,
                                     std::vector<float>& frame) {
    return absl::MakeSpan(frame).subspan(0, change.FrameElements(index));
  }

  absl::Span<float> AnchorOf(uint32_t fragment) {
    const FragmentSpec& spec = layout_.fragments[fragment];
    return absl::MakeSpan(anchor_).subspan(spec.first, spec.elements);
  }

  at::Tensor LocalOf(uint32_t fragment) const {
    const FragmentSpec& spec = layout_.fragments[fragment];
    return params_.values().narrow(0, spec.first, spec.elements);
  }

  static void CopyIn(absl::Span<const float> values, const at::Tensor& to) {
    to.copy_(at::from_blob(const_cast<float*>(values.data()),
                           {static_cast<int64_t>(values.size())}, at::kFloat));
  }

  absl::Status WriteLocal(uint32_t fragment, absl::Span<const float> values) {
    CopyIn(values, LocalOf(fragment));
    return absl::OkStatus();
  }

  absl::Status CopyLocal(uint32_t fragment, absl::Span<float> out) const {
    at::from_blob(out.data(), {static_cast<int64_t>(out.size())}, at::kFloat)
        .copy_(LocalOf(fragment));
    return absl::OkStatus();
  }

  const at::Tensor* StateTensor(absl::string_view name) {
    if (name == "local") return &params_.values();
    if (name == "exp_avg") return &optimizer_.exp_avg();
    if (name == "exp_avg_sq") return &optimizer_.exp_avg_sq();
    return nullptr;
  }

  const ModelConfig model_;
  const Layout layout_;
  const TrainSettings train_;
  const TorchOptions options_;
  const at::Device device_;
  const FlatParams params_;
  Transformer transformer_;
  AdamW optimizer_;
  std::vector<float> anchor_;  // On the host; never aliases params_.
  const FlatParams theta_;     // On the CPU anchor_ itself, elsewhere a copy.
  Transformer theta_transformer_;
  std::vector<std::vector<float>> taken_;  // Per fragment; empty: no ticket.
};

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> MakeTorchTrainer(
    const ModelConfig& model, const Layout& layout, const TrainSettings& train,
    const TorchOptions& options) {
  for (const TensorDecl& tensor : ModelTensors(model)) {
    const TensorSpec* spec = layout.Find(tensor.name);
    if (spec == nullptr || spec->decl.shape != tensor.shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the layout is not one of this model: tensor ", tensor.name,
          spec == nullptr ? " is missing" : " has another shape"));
    }
  }
  return Guarded("trainer", [&]() -> absl::StatusOr<std::unique_ptr<Trainer>> {
    ASSIGN_OR_RETURN(const at::Device device, OpenDevice(options.device));
    at::set_num_threads(std::max(options.threads, 1));
    return std::unique_ptr<Trainer>(
        std::make_unique<TorchTrainer>(model, layout, train, options, device));
  });
}

}  // namespace diloco

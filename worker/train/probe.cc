// Implements probe.h.
#include "worker/train/probe.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "worker/train/batch_tensors.h"
#include "worker/train/flat_params.h"
#include "worker/train/torch_guard.h"
#include "worker/train/transformer.h"

namespace diloco {
namespace {

std::vector<float> ToVector(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  const float* data = dense.data_ptr<float>();
  return std::vector<float>(data, data + dense.numel());
}

}  // namespace

absl::StatusOr<ForwardProbe> RunForwardProbe(const ModelConfig& model,
                                             const Layout& layout,
                                             absl::Span<const float> params,
                                             const Batch& batch) {
  RETURN_IF_ERROR(CheckBatch(model, batch));
  if (static_cast<int64_t>(params.size()) != layout.elements) {
    return absl::InvalidArgumentError(absl::StrCat(
        params.size(), " parameter values for a layout of ", layout.elements));
  }
  return Guarded("forward probe", [&]() -> absl::StatusOr<ForwardProbe> {
    at::set_num_threads(1);
    const FlatParams flat(layout, at::kCPU, /*with_grads=*/true);
    std::copy(params.begin(), params.end(),
              flat.values().mutable_data_ptr<float>());
    Transformer transformer(model, flat);
    ForwardProbe probe;
    const double tokens =
        static_cast<double>(CountedPredictions(batch, 0, batch.windows));
    if (tokens > 0) {
      const LossTotals totals = transformer.LossAndGradient(
          MakeInputs(batch, 0, batch.windows, at::kCPU), 1.0 / tokens);
      probe.loss = totals.cross_entropy / tokens;
      probe.z_loss = totals.z_loss / tokens;
    }
    probe.grads = ToVector(flat.grads());
    const at::Tensor ids =
        at::empty({batch.windows, batch.ids_per_window}, at::kLong);
    std::copy(batch.ids.begin(), batch.ids.end(),
              ids.mutable_data_ptr<int64_t>());
    if (batch.ids_per_window <= model.max_positions) {
      probe.logits = ToVector(transformer.Logits(ids));
    }
    return probe;
  });
}

}  // namespace diloco

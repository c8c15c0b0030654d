// Implements batch_tensors.h.
#include "worker/train/batch_tensors.h"

#include <algorithm>

namespace diloco {

absl::Status CheckBatch(const ModelConfig& model, const Batch& batch) {
  const int64_t width = batch.ids_per_window;
  if (batch.windows < 1 || width < 2 ||
      static_cast<int64_t>(batch.ids.size()) != batch.windows * width) {
    return absl::InvalidArgumentError(absl::StrCat(
        "batch of ", batch.windows, " windows of ", width, " ids with ",
        batch.ids.size(), " ids; at least 1 window of 2 ids is needed"));
  }
  if (width - 1 > model.max_positions) {
    return absl::InvalidArgumentError(
        absl::StrCat("windows of ", width - 1, " positions, but the model has ",
                     model.max_positions));
  }
  if (!batch.counted.empty() && static_cast<int64_t>(batch.counted.size()) !=
                                    batch.windows * (width - 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch with ", batch.counted.size(), " flags for ",
                     batch.windows * (width - 1), " predictions"));
  }
  for (size_t i = 0; i < batch.ids.size(); ++i) {
    if (batch.ids[i] < 0 || batch.ids[i] >= model.vocab) {
      return absl::InvalidArgumentError(absl::StrCat(
          "token id ", batch.ids[i], " at position ", i % width, " of window ",
          i / width, " of the batch; the vocabulary has ", model.vocab));
    }
  }
  return absl::OkStatus();
}

uint64_t CountedPredictions(const Batch& batch, int64_t first,
                            int64_t windows) {
  const int64_t width = batch.ids_per_window - 1;
  if (batch.counted.empty()) return static_cast<uint64_t>(windows * width);
  const auto begin = batch.counted.begin() + first * width;
  return static_cast<uint64_t>(windows * width -
                               std::count(begin, begin + windows * width, 0));
}

Transformer::Inputs MakeInputs(const Batch& batch, int64_t first,
                               int64_t windows, at::Device device) {
  const int64_t width = batch.ids_per_window;
  at::Tensor ids = at::empty({windows, width}, at::kLong);
  std::copy_n(batch.ids.begin() + first * width, windows * width,
              ids.data_ptr<int64_t>());
  Transformer::Inputs inputs;
  inputs.ids_BT = ids.narrow(1, 0, width - 1).contiguous().to(device);
  inputs.target_BT = ids.narrow(1, 1, width - 1).contiguous().to(device);
  at::Tensor weight = at::ones({windows, width - 1}, at::kFloat);
  if (!batch.counted.empty()) {
    float* out = weight.data_ptr<float>();
    for (int64_t i = 0; i < windows * (width - 1); ++i) {
      out[i] = batch.counted[first * (width - 1) + i] != 0 ? 1.0f : 0.0f;
    }
  }
  inputs.weight_BT = weight.to(device);
  return inputs;
}

}  // namespace diloco

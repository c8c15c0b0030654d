// The transformer's forward pass for generation: new ids against a cache of
// keys and values. Used by generator.cc.
#ifndef WORKER_TRAIN_DECODER_H_
#define WORKER_TRAIN_DECODER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/model_config.h"
#include "worker/train/flat_params.h"
#include "worker/train/kernels.h"
#include "worker/train/torch_headers.h"
#include "worker/train/transformer.h"

namespace diloco {

// Not thread-safe. `params` must outlive it.
class Decoder {
 public:
  Decoder(const ModelConfig& config, const FlatParams& params);

  // Forgets everything.
  void Reset() { length_ = 0; }
  int64_t length() const { return length_; }
  // Appends the ids (several only right after Reset) and returns the logits
  // [V] after the last. length() + ids.size() <= max_positions.
  at::Tensor Append(absl::Span<const int32_t> ids);

 private:
  at::Tensor Block(int64_t index, const at::Tensor& x_TH);

  const ModelConfig config_;
  const ModelWeights weights_;
  const RopeTable rope_;
  std::vector<at::Tensor> keys_1KPd_;  // Per block, [1, kv_heads, P, head_dim].
  std::vector<at::Tensor> values_1KPd_;
  int64_t length_ = 0;
};

}  // namespace diloco

#endif  // WORKER_TRAIN_DECODER_H_

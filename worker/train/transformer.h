// A Llama-style decoder on flat parameters: RMSNorm, rotary positions (half
// rotation), grouped-query attention, SwiGLU, tied or untied head. The backward
// pass is written out, so that gradients land in the flat buffer without
// copies; only attention uses autograd. Used by torch_trainer.cc and probe.cc.
//
// Legend: B windows, T positions, N = B*T tokens, H hidden, Q = heads *
// head_dim, K = kv_heads * head_dim, F ffn, V vocabulary.
#ifndef WORKER_TRAIN_TRANSFORMER_H_
#define WORKER_TRAIN_TRANSFORMER_H_

#include <memory>
#include <vector>

#include "common/model/model_config.h"
#include "worker/train/flat_params.h"
#include "worker/train/kernels.h"
#include "worker/train/torch_headers.h"

namespace diloco {

// The weights of one block; the q/k norms are undefined without qk_norm.
struct BlockWeights {
  Weight input_norm, q, k, v, q_norm, k_norm, o;
  Weight post_norm, gate, up, down;
};

struct ModelWeights {
  Weight embedding;
  std::vector<BlockWeights> blocks;
  Weight final_norm;
  Weight head;  // The embedding itself when tied.
};
ModelWeights BindWeights(const ModelConfig& config, const FlatParams& params);

struct BlockState;  // What a block's backward pass needs.

// Not thread-safe. `params` must outlive it.
class Transformer {
 public:
  Transformer(const ModelConfig& config, const FlatParams& params);
  ~Transformer();

  // ids_BT and target_BT are int64, weight_BT is 1 for a prediction that counts
  // and 0 for one that does not.
  struct Inputs {
    at::Tensor ids_BT;
    at::Tensor target_BT;
    at::Tensor weight_BT;
  };
  // Sums over the predictions that count.
  LossTotals Loss(const Inputs& inputs);
  // The same, and adds the gradient of scale * (sum of cross-entropy and
  // z-loss) to the gradient buffer.
  LossTotals LossAndGradient(const Inputs& inputs, double scale);
  at::Tensor Logits(const at::Tensor& ids_BT);  // [N, V]

 private:
  struct Activations;

  // Runs all blocks; keeps per block what the backward pass needs when `keep`.
  Activations& Forward(const at::Tensor& ids_BT, bool keep);
  void BlockForward(int64_t index, bool keep, Activations& act);
  void Attention(bool keep, BlockState& s);
  void BlockBackward(int64_t index, Activations& act);
  void AttentionBackward(const BlockWeights& w, BlockState& s,
                         Activations& act);
  // The head and the loss, in pieces of rows that fit the cache.
  LossTotals HeadLoss(const Inputs& inputs, double scale, bool backward,
                      Activations& act);

  const ModelConfig config_;
  const ModelWeights weights_;
  const RopeTable rope_;
  std::unique_ptr<Activations> train_;
  std::unique_ptr<Activations> eval_;
};

}  // namespace diloco

#endif  // WORKER_TRAIN_TRANSFORMER_H_

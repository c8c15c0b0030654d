// The transformer's shape, and the parameters it declares. Torch-free.
#ifndef COMMON_MODEL_MODEL_CONFIG_H_
#define COMMON_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/layout.h"

namespace diloco {

// A Llama-style decoder: RMSNorm, RoPE (half rotation), grouped-query
// attention, SwiGLU, no biases. Names follow the Hugging Face config in spirit.
struct ModelConfig {
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;  // 0 in a run file: hidden / heads.
  int64_t ffn = 0;
  int64_t vocab = 0;
  bool tied = false;     // The head shares the embedding.
  bool qk_norm = false;  // RMSNorm of queries and keys per head (Qwen3 style).
  double rope_theta = 10000.0;
  double rms_norm_eps = 1e-5;
  int64_t max_positions = 0;  // 0 in a run file: the run's seq_len.
  double z_loss = 0;          // Factor of the squared log-partition term.

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// Bounds and divisibility (heads by kv_heads, head_dim even, ...).
absl::Status ValidateModel(const ModelConfig& config);

// All parameters in declaration order, Hugging Face names, with classes; all
// in fragment 0 (one fragment). Tied: no lm_head.weight.
std::vector<TensorDecl> ModelTensors(const ModelConfig& config);

}  // namespace diloco

#endif  // COMMON_MODEL_MODEL_CONFIG_H_

#include "common/model/model_config.h"

#include "absl/strings/str_cat.h"

namespace diloco {
namespace {

// Limits that keep every product below 2^63 and catch slips of the pen.
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxPositions = 1 << 24;

absl::Status CheckRange(const char* name, int64_t value, int64_t min,
                        int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, "; expected ", min, " to ", max));
}

}  // namespace

absl::Status ValidateModel(const ModelConfig& config) {
  const struct {
    const char* name;
    int64_t value, min, max;
  } ranges[] = {
      {"layers", config.layers, 1, kMaxLayers},
      {"hidden", config.hidden, 1, kMaxWidth},
      {"heads", config.heads, 1, 1024},
      {"kv_heads", config.kv_heads, 1, 1024},
      {"head_dim", config.head_dim, 2, 4096},
      {"ffn", config.ffn, 1, kMaxWidth},
      {"vocab", config.vocab, 2, kMaxVocab},
      {"max_positions", config.max_positions, 1, kMaxPositions},
  };
  for (const auto& range : ranges) {
    absl::Status status =
        CheckRange(range.name, range.value, range.min, range.max);
    if (!status.ok()) return status;
  }
  if (config.heads % config.kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kv_heads ", config.kv_heads, " does not divide heads ", config.heads));
  }
  if (config.head_dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("head_dim ", config.head_dim,
                     " is odd; rotary embedding turns pairs of values"));
  }
  // Written so that NaN fails too.
  if (!(config.rope_theta >= 1 && config.rope_theta <= 1e12)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rope_theta is ", config.rope_theta, "; expected 1 to 1e12"));
  }
  if (!(config.rms_norm_eps > 0 && config.rms_norm_eps <= 0.1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rms_norm_eps is ", config.rms_norm_eps,
                     "; expected above 0, up to 0.1"));
  }
  if (!(config.z_loss >= 0 && config.z_loss <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("z_loss is ", config.z_loss, "; expected 0 to 1"));
  }
  return absl::OkStatus();
}

std::vector<TensorDecl> ModelTensors(const ModelConfig& config) {
  std::vector<TensorDecl> tensors;
  const auto matrix = [&](std::string name, int64_t rows, int64_t columns,
                          TensorClass tensor_class = TensorClass::kMatrix) {
    tensors.push_back({.name = std::move(name),
                       .shape = {rows, columns},
                       .tensor_class = tensor_class,
                       .decayed = true});
  };
  const auto norm = [&](std::string name, int64_t size) {
    tensors.push_back({.name = std::move(name),
                       .shape = {size},
                       .tensor_class = TensorClass::kVector,
                       .decayed = false});
  };
  const int64_t d = config.hidden;
  const int64_t q = config.heads * config.head_dim;
  const int64_t kv = config.kv_heads * config.head_dim;
  matrix("model.embed_tokens.weight", config.vocab, d, TensorClass::kEmbedding);
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = absl::StrCat("model.layers.", i, ".");
    norm(absl::StrCat(layer, "input_layernorm.weight"), d);
    matrix(absl::StrCat(layer, "self_attn.q_proj.weight"), q, d);
    matrix(absl::StrCat(layer, "self_attn.k_proj.weight"), kv, d);
    matrix(absl::StrCat(layer, "self_attn.v_proj.weight"), kv, d);
    matrix(absl::StrCat(layer, "self_attn.o_proj.weight"), d, q);
    if (config.qk_norm) {
      norm(absl::StrCat(layer, "self_attn.q_norm.weight"), config.head_dim);
      norm(absl::StrCat(layer, "self_attn.k_norm.weight"), config.head_dim);
    }
    norm(absl::StrCat(layer, "post_attention_layernorm.weight"), d);
    matrix(absl::StrCat(layer, "mlp.gate_proj.weight"), config.ffn, d);
    matrix(absl::StrCat(layer, "mlp.up_proj.weight"), config.ffn, d);
    matrix(absl::StrCat(layer, "mlp.down_proj.weight"), d, config.ffn);
  }
  norm("model.norm.weight", d);
  if (!config.tied) {
    matrix("lm_head.weight", config.vocab, d, TensorClass::kHead);
  }
  return tensors;
}

}  // namespace diloco

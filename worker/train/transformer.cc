// Implements transformer.h.
#include "worker/train/transformer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace diloco {
namespace {

// Logits are made this many bytes at a time on a CPU: they stay in the cache
// between the product, the softmax and the two products of the backward pass.
constexpr int64_t kLogitBytes = 2 << 20;

}  // namespace

ModelWeights BindWeights(const ModelConfig& config, const FlatParams& params) {
  ModelWeights weights;
  weights.embedding = params.Get("model.embed_tokens.weight");
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const auto get = [&](absl::string_view name) {
      return params.Get(
          absl::StrCat("model.layers.", layer, ".", name, ".weight"));
    };
    BlockWeights block;
    block.input_norm = get("input_layernorm");
    block.q = get("self_attn.q_proj");
    block.k = get("self_attn.k_proj");
    block.v = get("self_attn.v_proj");
    if (config.qk_norm) {
      block.q_norm = get("self_attn.q_norm");
      block.k_norm = get("self_attn.k_norm");
    }
    block.o = get("self_attn.o_proj");
    block.post_norm = get("post_attention_layernorm");
    block.gate = get("mlp.gate_proj");
    block.up = get("mlp.up_proj");
    block.down = get("mlp.down_proj");
    weights.blocks.push_back(block);
  }
  weights.final_norm = params.Get("model.norm.weight");
  weights.head = config.tied ? weights.embedding : params.Get("lm_head.weight");
  return weights;
}

// What one block's forward pass leaves for its backward pass.
struct BlockState {
  at::Tensor h1_NH, rstd1_N1;     // Input of q, k, v.
  at::Tensor q_NQ, k_NK, v_NK;    // After normalisation and rotation.
  at::Tensor raw_q_NQ, raw_k_NK;  // Before normalisation (qk_norm).
  at::Tensor q_rstd, k_rstd;
  at::Tensor q_leaf, k_leaf, v_leaf, out_BATd;  // The attention's graph.
  at::Tensor o_NQ;
  at::Tensor h2_NH, rstd2_N1;  // Input of gate and up.
  at::Tensor g_NF, u_NF, a_NF;
};

// Buffers for one batch shape, allocated once and used again every step.
struct Transformer::Activations {
  Activations(const ModelConfig& config, int64_t windows, int64_t time,
              bool keep, at::Device device)
      : windows(windows), time(time) {
    const int64_t tokens = windows * time;
    const int64_t q = config.heads * config.head_dim;
    const int64_t k = config.kv_heads * config.head_dim;
    const auto make = [&](int64_t rows, int64_t width) {
      return at::empty({rows, width},
                       at::TensorOptions().dtype(at::kFloat).device(device));
    };
    const int64_t states = keep ? config.layers : 1;
    for (int64_t i = 0; i < 2 * states + 1; ++i) {
      residual_NH.push_back(make(tokens, config.hidden));
    }
    for (int64_t i = 0; i < states; ++i) {
      BlockState s;
      s.h1_NH = make(tokens, config.hidden);
      s.rstd1_N1 = make(tokens, 1);
      s.q_NQ = make(tokens, q);
      s.k_NK = make(tokens, k);
      s.v_NK = make(tokens, k);
      if (config.qk_norm) {
        s.raw_q_NQ = make(tokens, q);
        s.raw_k_NK = make(tokens, k);
        s.q_rstd = make(tokens * config.heads, 1);
        s.k_rstd = make(tokens * config.kv_heads, 1);
      }
      s.o_NQ = make(tokens, q);
      s.h2_NH = make(tokens, config.hidden);
      s.rstd2_N1 = make(tokens, 1);
      s.g_NF = make(tokens, config.ffn);
      s.u_NF = make(tokens, config.ffn);
      s.a_NF = make(tokens, config.ffn);
      blocks.push_back(s);
    }
    final_NH = make(tokens, config.hidden);
    final_rstd_N1 = make(tokens, 1);
    if (keep) {
      dx_NH = make(tokens, config.hidden);
      dh_NH = make(tokens, config.hidden);
      dq_NQ = make(tokens, q);
      dk_NK = make(tokens, k);
      dv_NK = make(tokens, k);
      do_NQ = make(tokens, q);
      da_NF = make(tokens, config.ffn);
    }
    const int64_t fitting =
        kLogitBytes / static_cast<int64_t>(sizeof(float)) / config.vocab;
    logit_rows = device.is_cpu()
                     ? std::min(tokens, std::max<int64_t>(fitting, 64))
                     : tokens;
    logits_RV = make(logit_rows, config.vocab);
  }

  const int64_t windows;
  const int64_t time;
  // Before block 0, then after the attention and after the MLP of each block.
  std::vector<at::Tensor> residual_NH;
  std::vector<BlockState> blocks;
  at::Tensor final_NH, final_rstd_N1;
  at::Tensor dx_NH, dh_NH, dq_NQ, dk_NK, dv_NK, do_NQ, da_NF;
  int64_t logit_rows = 0;
  at::Tensor logits_RV;
};

Transformer::Transformer(const ModelConfig& config, const FlatParams& params)
    : config_(config),
      weights_(BindWeights(config, params)),
      rope_(MakeRopeTable(config.max_positions, config.head_dim,
                          config.rope_theta, params.values().device())) {}

Transformer::~Transformer() = default;

Transformer::Activations& Transformer::Forward(const at::Tensor& ids_BT,
                                               bool keep) {
  std::unique_ptr<Activations>& slot = keep ? train_ : eval_;
  if (slot == nullptr || slot->windows != ids_BT.size(0) ||
      slot->time != ids_BT.size(1)) {
    slot.reset();  // First, so that both never exist at once.
    slot = std::make_unique<Activations>(config_, ids_BT.size(0),
                                         ids_BT.size(1), keep, ids_BT.device());
  }
  Activations& act = *slot;
  at::index_select_out(act.residual_NH[0], weights_.embedding.value, 0,
                       ids_BT.view(-1));
  for (int64_t i = 0; i < config_.layers; ++i) BlockForward(i, keep, act);
  at::Tensor& last_NH = act.residual_NH[keep ? 2 * config_.layers : 0];
  RmsNorm(last_NH, weights_.final_norm.value, config_.rms_norm_eps,
          act.final_NH, act.final_rstd_N1);
  return act;
}

void Transformer::BlockForward(int64_t index, bool keep, Activations& act) {
  const BlockWeights& w = weights_.blocks[index];
  BlockState& s = act.blocks[keep ? index : 0];
  const at::Tensor& in_NH = act.residual_NH[keep ? 2 * index : 0];
  at::Tensor& mid_NH = act.residual_NH[keep ? 2 * index + 1 : 1];
  at::Tensor& out_NH = act.residual_NH[keep ? 2 * index + 2 : 0];

  RmsNorm(in_NH, w.input_norm.value, config_.rms_norm_eps, s.h1_NH, s.rstd1_N1);
  at::mm_out(s.q_NQ, s.h1_NH, w.q.value.t());
  at::mm_out(s.k_NK, s.h1_NH, w.k.value.t());
  at::mm_out(s.v_NK, s.h1_NH, w.v.value.t());
  const auto heads = [&](const at::Tensor& x, int64_t count) {
    return x.view({act.windows, act.time, count, config_.head_dim});
  };
  if (config_.qk_norm) {
    const auto rows = [&](const at::Tensor& x) {
      return x.view({-1, config_.head_dim});
    };
    s.raw_q_NQ.copy_(s.q_NQ);
    s.raw_k_NK.copy_(s.k_NK);
    at::Tensor q_rows = rows(s.q_NQ);
    at::Tensor k_rows = rows(s.k_NK);
    RmsNorm(rows(s.raw_q_NQ), w.q_norm.value, config_.rms_norm_eps, q_rows,
            s.q_rstd);
    RmsNorm(rows(s.raw_k_NK), w.k_norm.value, config_.rms_norm_eps, k_rows,
            s.k_rstd);
  }
  at::Tensor q_BTAd = heads(s.q_NQ, config_.heads);
  at::Tensor k_BTAd = heads(s.k_NK, config_.kv_heads);
  Rotate(rope_, 0, /*inverse=*/false, q_BTAd);
  Rotate(rope_, 0, /*inverse=*/false, k_BTAd);
  s.q_leaf = q_BTAd.transpose(1, 2);
  s.k_leaf = k_BTAd.transpose(1, 2);
  s.v_leaf = heads(s.v_NK, config_.kv_heads).transpose(1, 2);
  Attention(keep, s);
  heads(s.o_NQ, config_.heads).copy_(s.out_BATd.detach().transpose(1, 2));
  at::addmm_out(mid_NH, in_NH, s.o_NQ, w.o.value.t());

  RmsNorm(mid_NH, w.post_norm.value, config_.rms_norm_eps, s.h2_NH, s.rstd2_N1);
  at::mm_out(s.g_NF, s.h2_NH, w.gate.value.t());
  at::mm_out(s.u_NF, s.h2_NH, w.up.value.t());
  SwiGlu(s.g_NF, s.u_NF, s.a_NF);
  at::addmm_out(out_NH, mid_NH, s.a_NF, w.down.value.t());
}

void Transformer::Attention(bool keep, BlockState& s) {
  c10::AutoGradMode record(keep);
  if (keep) {
    s.q_leaf = s.q_leaf.detach().requires_grad_(true);
    s.k_leaf = s.k_leaf.detach().requires_grad_(true);
    s.v_leaf = s.v_leaf.detach().requires_grad_(true);
  }
  s.out_BATd = at::scaled_dot_product_attention(
      s.q_leaf, s.k_leaf, s.v_leaf, /*attn_mask=*/{}, /*dropout_p=*/0.0,
      /*is_causal=*/true, /*scale=*/std::nullopt,
      /*enable_gqa=*/config_.heads != config_.kv_heads);
}

at::Tensor Transformer::Logits(const at::Tensor& ids_BT) {
  c10::NoGradGuard no_grad;
  Activations& act = Forward(ids_BT, /*keep=*/false);
  return at::mm(act.final_NH, weights_.head.value.t());
}

LossTotals Transformer::Loss(const Inputs& inputs) {
  c10::NoGradGuard no_grad;
  Activations& act = Forward(inputs.ids_BT, /*keep=*/false);
  return HeadLoss(inputs, 1.0, /*backward=*/false, act);
}

LossTotals Transformer::HeadLoss(const Inputs& inputs, double scale,
                                 bool backward, Activations& act) {
  const at::Tensor target_N1 = inputs.target_BT.view({-1, 1});
  const at::Tensor weight_N1 = inputs.weight_BT.view({-1, 1});
  LossTotals totals;
  const int64_t tokens = target_N1.size(0);
  for (int64_t first = 0; first < tokens; first += act.logit_rows) {
    const int64_t rows = std::min(act.logit_rows, tokens - first);
    const at::Tensor final_RH = act.final_NH.narrow(0, first, rows);
    at::Tensor logits_RV = act.logits_RV.narrow(0, 0, rows);
    at::mm_out(logits_RV, final_RH, weights_.head.value.t());
    const LossTotals part = CrossEntropy(
        target_N1.narrow(0, first, rows), weight_N1.narrow(0, first, rows),
        config_.z_loss, scale, backward, logits_RV);
    totals.cross_entropy += part.cross_entropy;
    totals.z_loss += part.z_loss;
    if (!backward) continue;
    at::Tensor head_grad = weights_.head.grad;
    head_grad.addmm_(logits_RV.t(), final_RH);
    at::Tensor dh_RH = act.dh_NH.narrow(0, first, rows);
    at::mm_out(dh_RH, logits_RV, weights_.head.value);
  }
  return totals;
}

LossTotals Transformer::LossAndGradient(const Inputs& inputs, double scale) {
  c10::NoGradGuard no_grad;
  Activations& act = Forward(inputs.ids_BT, /*keep=*/true);
  const LossTotals totals = HeadLoss(inputs, scale, /*backward=*/true, act);
  at::Tensor norm_grad = weights_.final_norm.grad;
  RmsNormBackward(act.dh_NH, act.residual_NH[2 * config_.layers],
                  weights_.final_norm.value, act.final_rstd_N1,
                  /*accumulate=*/false, act.dx_NH, norm_grad);
  for (int64_t i = config_.layers - 1; i >= 0; --i) BlockBackward(i, act);
  at::Tensor embedding_grad = weights_.embedding.grad;
  embedding_grad.index_add_(0, inputs.ids_BT.view(-1), act.dx_NH);
  return totals;
}

// act.dx_NH holds the gradient of the block's output and then of its input.
void Transformer::BlockBackward(int64_t index, Activations& act) {
  const BlockWeights& w = weights_.blocks[index];
  BlockState& s = act.blocks[index];
  const auto add_outer = [](const Weight& weight, const at::Tensor& dy,
                            const at::Tensor& x) {
    at::Tensor grad = weight.grad;
    grad.addmm_(dy.t(), x);
  };
  at::mm_out(act.da_NF, act.dx_NH, w.down.value);
  add_outer(w.down, act.dx_NH, s.a_NF);
  SwiGluBackward(act.da_NF, s.a_NF, s.g_NF, s.u_NF);  // a is used up.
  add_outer(w.gate, s.g_NF, s.h2_NH);
  add_outer(w.up, s.u_NF, s.h2_NH);
  at::mm_out(act.dh_NH, s.g_NF, w.gate.value);
  act.dh_NH.addmm_(s.u_NF, w.up.value);
  at::Tensor post_grad = w.post_norm.grad;
  RmsNormBackward(act.dh_NH, act.residual_NH[2 * index + 1], w.post_norm.value,
                  s.rstd2_N1, /*accumulate=*/true, act.dx_NH, post_grad);

  at::mm_out(act.do_NQ, act.dx_NH, w.o.value);
  add_outer(w.o, act.dx_NH, s.o_NQ);
  AttentionBackward(w, s, act);
  add_outer(w.q, act.dq_NQ, s.h1_NH);
  add_outer(w.k, act.dk_NK, s.h1_NH);
  add_outer(w.v, act.dv_NK, s.h1_NH);
  at::mm_out(act.dh_NH, act.dq_NQ, w.q.value);
  act.dh_NH.addmm_(act.dk_NK, w.k.value);
  act.dh_NH.addmm_(act.dv_NK, w.v.value);
  at::Tensor input_grad = w.input_norm.grad;
  RmsNormBackward(act.dh_NH, act.residual_NH[2 * index], w.input_norm.value,
                  s.rstd1_N1, /*accumulate=*/true, act.dx_NH, input_grad);
}

// From act.do_NQ to the gradients of the three projections' outputs.
void Transformer::AttentionBackward(const BlockWeights& w, BlockState& s,
                                    Activations& act) {
  const auto heads = [&](const at::Tensor& x, int64_t count) {
    return x.view({act.windows, act.time, count, config_.head_dim});
  };
  s.out_BATd.backward(heads(act.do_NQ, config_.heads).transpose(1, 2));
  at::Tensor dq_BTAd = heads(act.dq_NQ, config_.heads);
  at::Tensor dk_BTAd = heads(act.dk_NK, config_.kv_heads);
  dq_BTAd.copy_(s.q_leaf.grad().transpose(1, 2));
  dk_BTAd.copy_(s.k_leaf.grad().transpose(1, 2));
  heads(act.dv_NK, config_.kv_heads).copy_(s.v_leaf.grad().transpose(1, 2));
  s.out_BATd.reset();
  s.q_leaf.reset();
  s.k_leaf.reset();
  s.v_leaf.reset();
  Rotate(rope_, 0, /*inverse=*/true, dq_BTAd);
  Rotate(rope_, 0, /*inverse=*/true, dk_BTAd);
  if (!config_.qk_norm) return;
  const auto rows = [&](const at::Tensor& x) {
    return x.view({-1, config_.head_dim});
  };
  at::Tensor dq_rows = rows(act.dq_NQ);
  at::Tensor dk_rows = rows(act.dk_NK);
  at::Tensor q_grad = w.q_norm.grad;
  at::Tensor k_grad = w.k_norm.grad;
  RmsNormBackward(dq_rows.clone(), rows(s.raw_q_NQ), w.q_norm.value, s.q_rstd,
                  /*accumulate=*/false, dq_rows, q_grad);
  RmsNormBackward(dk_rows.clone(), rows(s.raw_k_NK), w.k_norm.value, s.k_rstd,
                  /*accumulate=*/false, dk_rows, k_grad);
}

}  // namespace diloco

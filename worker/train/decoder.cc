// Implements decoder.h. Legend: T new ids, P positions, H hidden, A heads, K
// key/value heads, d head dimension.
#include "worker/train/decoder.h"

#include <algorithm>

#include "common/base/logging.h"

namespace diloco {
namespace {

at::Tensor Normed(const at::Tensor& x_RD, const Weight& weight, double eps) {
  at::Tensor y_RD = at::empty_like(x_RD);
  at::Tensor rstd_R1 = at::empty({x_RD.size(0), 1}, x_RD.options());
  RmsNorm(x_RD, weight.value, eps, y_RD, rstd_R1);
  return y_RD;
}

}  // namespace

Decoder::Decoder(const ModelConfig& config, const FlatParams& params)
    : config_(config),
      weights_(BindWeights(config, params)),
      rope_(MakeRopeTable(config.max_positions, config.head_dim,
                          config.rope_theta, params.values().device())) {
  for (int64_t i = 0; i < config.layers; ++i) {
    for (auto* cache : {&keys_1KPd_, &values_1KPd_}) {
      cache->push_back(
          at::empty({1, config.kv_heads, config.max_positions, config.head_dim},
                    params.values().options()));
    }
  }
}

at::Tensor Decoder::Append(absl::Span<const int32_t> ids) {
  const int64_t count = static_cast<int64_t>(ids.size());
  DILOCO_CHECK(count >= 1 && (count == 1 || length_ == 0) &&
               length_ + count <= config_.max_positions)
      << count << " after " << length_;
  c10::NoGradGuard no_grad;
  at::Tensor ids_T = at::empty({count}, at::kLong);
  std::copy(ids.begin(), ids.end(), ids_T.mutable_data_ptr<int64_t>());
  at::Tensor x_TH = at::index_select(weights_.embedding.value, 0, ids_T);
  for (int64_t i = 0; i < config_.layers; ++i) x_TH = Block(i, x_TH);
  length_ += count;
  const at::Tensor last_1H = Normed(x_TH.narrow(0, count - 1, 1),
                                    weights_.final_norm, config_.rms_norm_eps);
  return at::mm(last_1H, weights_.head.value.t()).view(-1);
}

at::Tensor Decoder::Block(int64_t index, const at::Tensor& x_TH) {
  const BlockWeights& w = weights_.blocks[index];
  const double eps = config_.rms_norm_eps;
  const int64_t count = x_TH.size(0);
  const at::Tensor h1_TH = Normed(x_TH, w.input_norm, eps);
  const auto project = [&](const Weight& weight, int64_t heads) {
    return at::mm(h1_TH, weight.value.t())
        .view({count * heads, config_.head_dim});
  };
  at::Tensor q = project(w.q, config_.heads);
  at::Tensor k = project(w.k, config_.kv_heads);
  const at::Tensor v = project(w.v, config_.kv_heads);
  if (config_.qk_norm) {
    q = Normed(q, w.q_norm, eps);
    k = Normed(k, w.k_norm, eps);
  }
  const auto by_head = [&](const at::Tensor& x, int64_t heads) {
    return x.view({1, count, heads, config_.head_dim});
  };
  at::Tensor q_1TAd = by_head(q, config_.heads);
  at::Tensor k_1TKd = by_head(k, config_.kv_heads);
  Rotate(rope_, length_, /*inverse=*/false, q_1TAd);
  Rotate(rope_, length_, /*inverse=*/false, k_1TKd);
  keys_1KPd_[index].narrow(2, length_, count).copy_(k_1TKd.transpose(1, 2));
  values_1KPd_[index]
      .narrow(2, length_, count)
      .copy_(by_head(v, config_.kv_heads).transpose(1, 2));
  const at::Tensor out_1ATd = at::scaled_dot_product_attention(
      q_1TAd.transpose(1, 2), keys_1KPd_[index].narrow(2, 0, length_ + count),
      values_1KPd_[index].narrow(2, 0, length_ + count), /*attn_mask=*/{},
      /*dropout_p=*/0.0, /*is_causal=*/count > 1, /*scale=*/std::nullopt,
      /*enable_gqa=*/config_.heads != config_.kv_heads);
  const at::Tensor o_TQ = out_1ATd.transpose(1, 2).reshape({count, -1});
  const at::Tensor mid_TH = at::addmm(x_TH, o_TQ, w.o.value.t());
  const at::Tensor h2_TH = Normed(mid_TH, w.post_norm, eps);
  const at::Tensor a_TF =
      at::silu(at::mm(h2_TH, w.gate.value.t())) * at::mm(h2_TH, w.up.value.t());
  return at::addmm(mid_TH, a_TF, w.down.value.t());
}

}  // namespace diloco

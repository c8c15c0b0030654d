// Implements kernels.h.
#include "worker/train/kernels.h"

#include <algorithm>

#include "worker/train/kernels_cpu.h"

namespace diloco {
namespace {

void RmsNormBackwardOnCpu(const at::Tensor& dy_RD, const at::Tensor& x_RD,
                          const at::Tensor& w_D, const at::Tensor& rstd_R1,
                          bool accumulate, at::Tensor& dx_RD,
                          at::Tensor& dw_D) {
  const int64_t rows = x_RD.size(0);
  const int64_t width = x_RD.size(1);
  const int64_t pieces = (rows + kNormRows - 1) / kNormRows;
  at::Tensor partial_PD = at::empty({pieces, width}, x_RD.options());
  const float* dy = dy_RD.const_data_ptr<float>();
  const float* x = x_RD.const_data_ptr<float>();
  const float* w = w_D.const_data_ptr<float>();
  const float* rstd = rstd_R1.const_data_ptr<float>();
  float* dx = dx_RD.mutable_data_ptr<float>();
  float* partial = partial_PD.mutable_data_ptr<float>();
  at::parallel_for(0, pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t first = piece * kNormRows;
      RmsNormBackwardCpu(std::min(kNormRows, rows - first), width,
                         dy + first * width, x + first * width, w, rstd + first,
                         accumulate, dx + first * width,
                         partial + piece * width);
    }
  });
  dw_D.add_(partial_PD.sum(0));
}

}  // namespace

void RmsNorm(const at::Tensor& x_RD, const at::Tensor& w_D, double eps,
             at::Tensor& y_RD, at::Tensor& rstd_R1) {
  at::mul_out(y_RD, x_RD, x_RD);
  at::mean_out(rstd_R1, y_RD, {1}, /*keepdim=*/true);
  rstd_R1.add_(eps).rsqrt_();
  at::mul_out(y_RD, x_RD, rstd_R1);
  y_RD.mul_(w_D);
}

void RmsNormBackward(const at::Tensor& dy_RD, const at::Tensor& x_RD,
                     const at::Tensor& w_D, const at::Tensor& rstd_R1,
                     bool accumulate, at::Tensor& dx_RD, at::Tensor& dw_D) {
  if (x_RD.is_cpu()) {
    RmsNormBackwardOnCpu(dy_RD, x_RD, w_D, rstd_R1, accumulate, dx_RD, dw_D);
    return;
  }
  const at::Tensor normed_RD = x_RD * rstd_R1;
  dw_D.add_((dy_RD * normed_RD).sum(0));
  at::Tensor dn_RD = dy_RD * w_D;
  const at::Tensor mean_R1 = (dn_RD * normed_RD).mean(1, /*keepdim=*/true);
  dn_RD.addcmul_(normed_RD, mean_R1, -1);
  if (accumulate) {
    dx_RD.addcmul_(dn_RD, rstd_R1);
  } else {
    at::mul_out(dx_RD, dn_RD, rstd_R1);
  }
}

RopeTable MakeRopeTable(int64_t positions, int64_t head_dim, double theta,
                        at::Device device) {
  const auto f64 = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor exponent_h =
      at::arange(head_dim / 2, f64) * (-2.0 / static_cast<double>(head_dim));
  const at::Tensor frequency_h = at::pow(theta, exponent_h);
  const at::Tensor angle_Th =
      at::outer(at::arange(positions, f64), frequency_h);
  return {angle_Th.cos().to(at::kFloat).to(device),
          angle_Th.sin().to(at::kFloat).to(device)};
}

void Rotate(const RopeTable& table, int64_t first, bool inverse,
            at::Tensor& x_BTAd) {
  const int64_t time = x_BTAd.size(1);
  const int64_t half = x_BTAd.size(3) / 2;
  if (x_BTAd.is_cpu()) {
    const int64_t heads = x_BTAd.size(2);
    const float* cos = table.cos_Th.const_data_ptr<float>() + first * half;
    const float* sin = table.sin_Th.const_data_ptr<float>() + first * half;
    float* x = x_BTAd.mutable_data_ptr<float>();
    at::parallel_for(
        0, x_BTAd.size(0) * time, 64, [&](int64_t begin, int64_t end) {
          for (int64_t token = begin; token < end; ++token) {
            const int64_t at = token % time * half;
            RotateCpu(heads, 2 * half, cos + at, sin + at, inverse ? -1.f : 1.f,
                      x + token * heads * 2 * half);
          }
        });
    return;
  }
  const at::Tensor cos_T1h = table.cos_Th.narrow(0, first, time).unsqueeze(1);
  const at::Tensor sin_T1h = table.sin_Th.narrow(0, first, time).unsqueeze(1);
  at::Tensor a = x_BTAd.narrow(3, 0, half);
  at::Tensor b = x_BTAd.narrow(3, half, half);
  const double sign = inverse ? -1 : 1;
  const at::Tensor a_sin = a * sin_T1h;
  a.mul_(cos_T1h).addcmul_(b, sin_T1h, -sign);
  b.mul_(cos_T1h).add_(a_sin, sign);
}

void SwiGlu(const at::Tensor& g_NF, const at::Tensor& u_NF, at::Tensor& a_NF) {
  at::silu_out(a_NF, g_NF);
  a_NF.mul_(u_NF);
}

void SwiGluBackward(const at::Tensor& da_NF, at::Tensor& scratch_NF,
                    at::Tensor& g_NF, at::Tensor& u_NF) {
  if (g_NF.is_cpu()) {
    at::Tensor& sigmoid_NF = scratch_NF;
    at::sigmoid_out(sigmoid_NF, g_NF);
    const float* sigmoid = sigmoid_NF.const_data_ptr<float>();
    const float* da = da_NF.const_data_ptr<float>();
    float* g = g_NF.mutable_data_ptr<float>();
    float* u = u_NF.mutable_data_ptr<float>();
    at::parallel_for(0, g_NF.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
      SwiGluBackwardCpu(end - begin, sigmoid + begin, da + begin, g + begin,
                        u + begin);
    });
    return;
  }
  const at::Tensor du_NF = at::silu(g_NF).mul_(da_NF);
  u_NF.mul_(da_NF);
  const at::Tensor dg_NF = at::silu_backward(u_NF, g_NF);
  g_NF.copy_(dg_NF);
  u_NF.copy_(du_NF);
}

LossTotals CrossEntropy(const at::Tensor& target_R1,
                        const at::Tensor& weight_R1, double z_factor,
                        double scale, bool backward, at::Tensor& logits_RV) {
  const at::Tensor target_logit_R1 = logits_RV.gather(1, target_R1);
  at::Tensor log_p_RV = logits_RV;
  at::_log_softmax_out(log_p_RV, logits_RV, 1, /*half_to_float=*/false);
  const at::Tensor log_p_R1 = log_p_RV.gather(1, target_R1);
  LossTotals totals;
  totals.cross_entropy =
      -(log_p_R1 * weight_R1).sum(at::kDouble).item<double>();
  at::Tensor row_scale_R1 = weight_R1 * scale;
  const at::Tensor hit_R1 = row_scale_R1.neg();
  if (z_factor != 0) {
    const at::Tensor log_z_R1 = target_logit_R1 - log_p_R1;
    totals.z_loss =
        z_factor *
        (log_z_R1.square() * weight_R1).sum(at::kDouble).item<double>();
    row_scale_R1 = row_scale_R1 * (log_z_R1 * (2 * z_factor) + 1);
  }
  if (backward) {
    log_p_RV.exp_().mul_(row_scale_R1);
    log_p_RV.scatter_add_(1, target_R1, hit_R1);
  }
  return totals;
}

}  // namespace diloco

// Implements kernels.h.
#include "worker/train/kernels.h"

namespace diloco {

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

void SwiGluBackward(const at::Tensor& da_NF, at::Tensor& g_NF,
                    at::Tensor& u_NF) {
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

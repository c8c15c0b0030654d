// The transformer's operations that are not matrix products, forward and
// backward, on rows of float32. Written with ATen operations, so they run on
// any device; a CPU takes the loops of kernels_cpu.h where those save passes.
// All tensors are contiguous. Used by transformer.cc and decoder.cc.
//
// Legend: R rows, D width, N tokens (batch x time), T time, V vocabulary.
#ifndef WORKER_TRAIN_KERNELS_H_
#define WORKER_TRAIN_KERNELS_H_

#include "worker/train/torch_headers.h"

namespace diloco {

// y = x / sqrt(mean(x^2) + eps) * w per row; rstd_R keeps the factor.
void RmsNorm(const at::Tensor& x_RD, const at::Tensor& w_D, double eps,
             at::Tensor& y_RD, at::Tensor& rstd_R1);
// Adds to dw_D, and writes the gradient of x, added to what dx_RD holds when
// `accumulate`.
void RmsNormBackward(const at::Tensor& dy_RD, const at::Tensor& x_RD,
                     const at::Tensor& w_D, const at::Tensor& rstd_R1,
                     bool accumulate, at::Tensor& dx_RD, at::Tensor& dw_D);

// cos and sin of position * theta^(-2i/d), i < d/2, for positions
// [0, positions).
struct RopeTable {
  at::Tensor cos_Th;
  at::Tensor sin_Th;
};
RopeTable MakeRopeTable(int64_t positions, int64_t head_dim, double theta,
                        at::Device device);
// Turns every head in place: pair i is (x[i], x[i + d/2]). `inverse` turns
// back, which is also the gradient. x_BTAd has T consecutive positions that
// start at `first`.
void Rotate(const RopeTable& table, int64_t first, bool inverse,
            at::Tensor& x_BTAd);

// a = silu(g) * u.
void SwiGlu(const at::Tensor& g_NF, const at::Tensor& u_NF, at::Tensor& a_NF);
// Replaces g and u by their gradients; the content of scratch is lost.
void SwiGluBackward(const at::Tensor& da_NF, at::Tensor& scratch_NF,
                    at::Tensor& g_NF, at::Tensor& u_NF);

struct LossTotals {
  double cross_entropy = 0;  // Nats, summed.
  double z_loss = 0;         // z_factor * log(Z)^2, summed.
};
// Sums over rows, each times its weight (0 leaves a prediction out). With
// `backward`, logits become the gradient of scale * (both sums).
LossTotals CrossEntropy(const at::Tensor& target_R1,
                        const at::Tensor& weight_R1, double z_factor,
                        double scale, bool backward, at::Tensor& logits_RV);

}  // namespace diloco

#endif  // WORKER_TRAIN_KERNELS_H_

// The CPU's versions of what would take several passes over memory with ATen
// operations: plain loops over float32. The same bits on every instruction set
// (fixed order of sums, no contraction). Used by kernels.cc and adamw.cc.
#ifndef WORKER_TRAIN_KERNELS_CPU_H_
#define WORKER_TRAIN_KERNELS_CPU_H_

#include <cstdint>

namespace diloco {

// Rows of one partial sum of a weight gradient; fixed, so that the number of
// threads does not change the result.
inline constexpr int64_t kNormRows = 64;

// Gradient of x / rms(x) * w for `rows` rows of `width`; see RmsNormBackward.
// dw is overwritten with the sum over these rows.
void RmsNormBackwardCpu(int64_t rows, int64_t width, const float* dy,
                        const float* x, const float* w, const float* rstd,
                        bool accumulate, float* dx, float* dw);

// Turns `heads` heads of one position; sin negated turns back.
void RotateCpu(int64_t heads, int64_t head_dim, const float* cos,
               const float* sin, float sign, float* x);

// g and u become their gradients; sigmoid is that of g.
void SwiGluBackwardCpu(int64_t elements, const float* sigmoid, const float* da,
                       float* g, float* u);

// In double.
double SumSquaresCpu(int64_t elements, const float* x);

}  // namespace diloco

#endif  // WORKER_TRAIN_KERNELS_CPU_H_

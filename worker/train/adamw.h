// AdamW on the flat buffers: one fused call for the decayed and one for the
// other range of each fragment. Used by torch_trainer.cc.
#ifndef WORKER_TRAIN_ADAMW_H_
#define WORKER_TRAIN_ADAMW_H_

#include <cstdint>

#include "common/config/run_settings.h"
#include "common/tensor/layout.h"
#include "worker/train/flat_params.h"
#include "worker/train/torch_headers.h"

namespace diloco {

class AdamW {
 public:
  // Moments start at zero. `params` and `layout` must outlive it.
  AdamW(const TrainSettings& settings, const Layout& layout,
        const FlatParams& params);

  // One step with the gradients as they are.
  void Step(double lr);

  at::Tensor& exp_avg() { return exp_avg_; }
  at::Tensor& exp_avg_sq() { return exp_avg_sq_; }
  uint64_t steps() const { return steps_; }
  void set_steps(uint64_t steps) { steps_ = steps; }

 private:
  void StepRange(int64_t first, int64_t elements, double lr, double decay);

  const TrainSettings settings_;
  const Layout& layout_;
  const FlatParams& params_;
  at::Tensor exp_avg_;
  at::Tensor exp_avg_sq_;
  at::Tensor step_;  // One float: what the kernel's bias correction reads.
  uint64_t steps_ = 0;
};

// The L2 norm of the flat gradients, summed in double; infinite or NaN when an
// element is.
double GradientNorm(const at::Tensor& grads);

}  // namespace diloco

#endif  // WORKER_TRAIN_ADAMW_H_

// Implements adamw.h.
#include "worker/train/adamw.h"

#include <cmath>

#include "worker/train/kernels_cpu.h"

namespace diloco {

AdamW::AdamW(const TrainSettings& settings, const Layout& layout,
             const FlatParams& params)
    : settings_(settings), layout_(layout), params_(params) {
  exp_avg_ = at::zeros_like(params.values());
  exp_avg_sq_ = at::zeros_like(params.values());
  step_ = at::zeros({1}, params.values().options());
}

void AdamW::Step(double lr) {
  ++steps_;
  step_.fill_(static_cast<double>(steps_));
  for (const FragmentSpec& fragment : layout_.fragments) {
    StepRange(fragment.first, fragment.decayed_elements, lr,
              settings_.weight_decay);
    StepRange(fragment.first + fragment.decayed_elements,
              fragment.elements - fragment.decayed_elements, lr, 0.0);
  }
}

void AdamW::StepRange(int64_t first, int64_t elements, double lr,
                      double decay) {
  if (elements == 0) return;
  at::_fused_adamw_({params_.values().narrow(0, first, elements)},
                    {params_.grads().narrow(0, first, elements)},
                    {exp_avg_.narrow(0, first, elements)},
                    {exp_avg_sq_.narrow(0, first, elements)}, {}, {step_}, lr,
                    settings_.beta1, settings_.beta2, decay, settings_.eps,
                    /*amsgrad=*/false, /*maximize=*/false);
}

double GradientNorm(const at::Tensor& grads) {
  if (grads.is_cpu()) {
    return std::sqrt(
        SumSquaresCpu(grads.numel(), grads.const_data_ptr<float>()));
  }
  return at::linalg_vector_norm(grads, 2, std::nullopt, /*keepdim=*/false,
                                at::kDouble)
      .item<double>();
}

}  // namespace diloco

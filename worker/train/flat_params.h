// All parameters in one float32 buffer and all gradients in another, in the
// order of the Layout, with a view per tensor. The optimiser, the norm and the
// take of a fragment work on ranges of the buffers; the transformer works on
// the views. Used by torch_trainer.cc, transformer.cc and probe.cc.
#ifndef WORKER_TRAIN_FLAT_PARAMS_H_
#define WORKER_TRAIN_FLAT_PARAMS_H_

#include <string>

#include "common/tensor/layout.h"
#include "worker/train/torch_headers.h"

namespace diloco {

// A tensor's place in both buffers; shares their memory.
struct Weight {
  at::Tensor value;
  at::Tensor grad;  // Undefined when the buffers have no gradients.
};

class FlatParams {
 public:
  // Zeros, padding included. `layout` must outlive this object.
  FlatParams(const Layout& layout, at::Device device, bool with_grads);
  // Parameters without gradients in `values`, which has the layout's elements.
  FlatParams(const Layout& layout, at::Tensor values);

  const at::Tensor& values() const { return values_; }
  const at::Tensor& grads() const { return grads_; }
  // The tensor must exist (the layout was built from the model's own tensors).
  Weight Get(absl::string_view name) const;

 private:
  const Layout& layout_;
  at::Tensor values_;
  at::Tensor grads_;
};

}  // namespace diloco

#endif  // WORKER_TRAIN_FLAT_PARAMS_H_

// Implements flat_params.h.
#include "worker/train/flat_params.h"

#include <utility>

#include "common/base/logging.h"

namespace diloco {

FlatParams::FlatParams(const Layout& layout, at::Device device, bool with_grads)
    : layout_(layout) {
  const auto options = at::TensorOptions().dtype(at::kFloat).device(device);
  values_ = at::zeros({layout.elements}, options);
  if (with_grads) grads_ = at::zeros({layout.elements}, options);
}

FlatParams::FlatParams(const Layout& layout, at::Tensor values)
    : layout_(layout), values_(std::move(values)) {
  DILOCO_CHECK(values_.numel() == layout.elements) << values_.numel();
}

Weight FlatParams::Get(absl::string_view name) const {
  const TensorSpec* spec = layout_.Find(name);
  DILOCO_CHECK(spec != nullptr) << "the layout has no tensor " << name;
  Weight weight;
  weight.value =
      values_.narrow(0, spec->offset, spec->elements).view(spec->decl.shape);
  if (grads_.defined()) {
    weight.grad =
        grads_.narrow(0, spec->offset, spec->elements).view(spec->decl.shape);
  }
  return weight;
}

}  // namespace diloco

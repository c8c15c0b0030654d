// The loops of error feedback: one rounded operation a value.
#include "common/tensor/error_feedback.h"

#include "common/base/logging.h"
#include "common/tensor/codec/block_scale.h"

namespace diloco {
namespace {

// False for NaN, too.
DILOCO_INLINE_BODY bool Fits(float value) {
  return block_scale::AbsBits(value) <=
         std::bit_cast<uint32_t>(kLargestResidual);
}

}  // namespace

void AddResidual(absl::Span<const float> residual, absl::Span<float> values) {
  DILOCO_CHECK(residual.size() == values.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] += residual[i];
}

void KeepError(absl::Span<const float> values, absl::Span<const float> decoded,
               absl::Span<float> residual) {
  DILOCO_CHECK(values.size() == decoded.size() &&
               values.size() == residual.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const float error = values[i] - decoded[i];
    residual[i] = Fits(error) ? error : 0.0f;
  }
}

void GiveBack(absl::Span<const float> decoded, absl::Span<float> residual) {
  DILOCO_CHECK(decoded.size() == residual.size());
  for (size_t i = 0; i < residual.size(); ++i) {
    const float sum = residual[i] + decoded[i];
    residual[i] = Fits(sum) ? sum : residual[i];
  }
}

}  // namespace diloco

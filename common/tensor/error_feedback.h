// Error feedback: what an encoding lost of one update is added to the next, so
// that over time everything is sent. Pure; spans of equal size.
//
//   AddResidual(residual, values);          // x = delta + residual
//   ... encode values, decode into decoded ...
//   KeepError(values, decoded, residual);   // residual = x - decoded
//
// When the update does not count after all, GiveBack(decoded, residual) undoes
// what was sent: the residual is x then.
#ifndef COMMON_TENSOR_ERROR_FEEDBACK_H_
#define COMMON_TENSOR_ERROR_FEEDBACK_H_

#include "absl/types/span.h"

namespace diloco {

// No residual is larger: what made a fold refuse one update, which begins far
// above, does not come again with the next.
inline constexpr float kLargestResidual = 0x1p64f;

// values += residual.
void AddResidual(absl::Span<const float> residual, absl::Span<float> values);
// residual = values - decoded; 0 where that is not finite or too large.
void KeepError(absl::Span<const float> values, absl::Span<const float> decoded,
               absl::Span<float> residual);
// residual += decoded, except where the sum is not finite or too large.
void GiveBack(absl::Span<const float> decoded, absl::Span<float> residual);

}  // namespace diloco

#endif  // COMMON_TENSOR_ERROR_FEEDBACK_H_

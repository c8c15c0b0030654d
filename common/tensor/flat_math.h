// Elementwise arithmetic on flat float32 buffers that every worker must do with
// the same bits, on every CPU.
#ifndef COMMON_TENSOR_FLAT_MATH_H_
#define COMMON_TENSOR_FLAT_MATH_H_

#include "absl/types/span.h"
#include "common/tensor/cpu_path.h"

namespace diloco {

// local = mix * local + (1 - mix) * global, with `mix` in 0..1 and as many
// values in both. Each operation is rounded to float32. At 0 and at 1 the other
// side does not count at all, not even where it is not finite. `path` is one
// that this CPU has.
void MixInto(float mix, absl::Span<const float> global, absl::Span<float> local,
             CpuPath path = BestCpuPath());

}  // namespace diloco

#endif  // COMMON_TENSOR_FLAT_MATH_H_

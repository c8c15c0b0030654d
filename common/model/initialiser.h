// theta(0) from a seed: computed once, by the coordinator, and handed out.
// Integer arithmetic and single IEEE operations only, so the same bits on every
// CPU, compiler and optimisation level; a golden digest test holds it still.
#ifndef COMMON_MODEL_INITIALISER_H_
#define COMMON_MODEL_INITIALISER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/model/model_config.h"
#include "common/tensor/layout.h"

namespace diloco {

// Fills `theta` (layout.elements values) in layout order: norm weights 1,
// everything else normal with standard deviation 0.02, the projections that
// write into the residual stream (o_proj, down_proj) with 0.02 / sqrt(2 x
// layers); padding 0. A value depends on seed, tensor name and index only, not
// on the layout. INVALID_ARGUMENT when the size does not match.
absl::Status InitialiseTheta(const ModelConfig& config, const Layout& layout,
                             uint64_t seed, absl::Span<float> theta);

}  // namespace diloco

#endif  // COMMON_MODEL_INITIALISER_H_

// The arithmetic of the fold over one tile, and which instruction set it runs
// on. Used by fold.cc; tests and the bench call single paths.
#ifndef COORDINATOR_AGGREGATE_FOLD_KERNEL_H_
#define COORDINATOR_AGGREGATE_FOLD_KERNEL_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/tensor/codec.h"
#include "common/tensor/cpu_path.h"

namespace diloco {

struct OuterSettings {
  float lr = 0.7f;
  float momentum = 0.9f;
  bool nesterov = true;
};

struct FoldInput {
  Codec codec = Codec::kFp16;    // A plain one.
  absl::Span<const char> bytes;  // Encoded values, one per momentum element.
  uint64_t weight = 1;
  double factor = 1;  // Of the weight, not counted in the divisor.
};

// Folds `inputs` (one or more, of one codec) in the order given; pure. Writes
// the change c into `change`, advances `momentum`, returns the sum of squares
// of the mean. The weights add up to W, more than 0 and less than 2^64.
// `change` and `momentum` do not overlap; inputs may be the same bytes.
//
// Arithmetic, per element: S = sum of weight * factor * delta in double, in the
// order of inputs; mean = float(S * (1 / W)) with 1 / W rounded once per call;
// then the outer step in float, each operation rounded. For fp16 deltas of
// equal weight S is exact up to 2^12 inputs, whatever their order.
double FoldTile(absl::Span<const FoldInput> inputs, const OuterSettings& outer,
                absl::Span<float> momentum, absl::Span<float> change);
double FoldTileOnPath(CpuPath path, absl::Span<const FoldInput> inputs,
                      const OuterSettings& outer, absl::Span<float> momentum,
                      absl::Span<float> change);

// theta[i] += change[i].
void ApplyChange(absl::Span<const float> change, absl::Span<float> theta);
void ApplyChangeOnPath(CpuPath path, absl::Span<const float> change,
                       absl::Span<float> theta);

}  // namespace diloco

#endif  // COORDINATOR_AGGREGATE_FOLD_KERNEL_H_

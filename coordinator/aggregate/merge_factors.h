// The merge rules: from the inner products of the updates over one tensor to
// the factor by which each update's weight counts there. Pure. The fold takes
//   mean = sum_i w_i * f_i * delta_i / sum_i w_i
// so that factors of 1 are the weighted mean.
//
//   norm_clipped (Templar): f_i = min(1, median norm / norm_i), per tensor and
//     update; of an even number the median is the lower of the two in the
//     middle, as torch.median has it.
//   radial_directional (Decoupled DiLoCo, arXiv 2604.21428):
//     (sum w |v| / sum w) * phi(sum w phi(v) / sum w), phi(x) = x / |x|,
//     phi(0) = 0; embeddings take the plain mean. Keeps the norm of updates
//     that are nearly orthogonal, of which a mean of k leaves 1 / sqrt(k).
#ifndef COORDINATOR_AGGREGATE_MERGE_FACTORS_H_
#define COORDINATOR_AGGREGATE_MERGE_FACTORS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "coordinator/aggregate/gram.h"
#include "coordinator/core/merge_rule.h"

namespace diloco {

// Directions whose mean is shorter than this cancel: what is left of it is
// rounding error, and counts as phi(0).
inline constexpr double kLeastDirection = 1e-6;

// What `rule` reads of the products over a tensor; absent: nothing, its factors
// are 1.
bool NeedsGram(MergeRule rule, const MergeTensor& tensor);
GramPart GramPartOf(MergeRule rule);

// One per member. `gram` holds GramPartOf(rule); weights add up to more than 0.
// The result's norm is at most `largest`, which keeps a fold from overflowing.
std::vector<double> MergeFactors(MergeRule rule,
                                 absl::Span<const uint64_t> weights,
                                 const GramMatrix& gram, double largest);

}  // namespace diloco

#endif  // COORDINATOR_AGGREGATE_MERGE_FACTORS_H_

// The first stage of a fold whose merge rule looks at the updates: one pass
// over their files, tensor by tensor, to the factors that the second stage
// folds with. Only fold.cc uses it.
#ifndef COORDINATOR_AGGREGATE_GRAM_STAGE_H_
#define COORDINATOR_AGGREGATE_GRAM_STAGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/aggregate/fold.h"

namespace diloco {

struct TensorFactors {
  int64_t end = 0;              // Of the tensor, in elements of the fragment.
  std::vector<double> factors;  // By member.
};

// Empty for a rule that needs none. DATA_LOSS: a member's frame is damaged.
// INVALID_ARGUMENT: the tensors do not make up `elements`.
absl::StatusOr<std::vector<TensorFactors>> ComputeFactors(
    absl::Span<const FoldMember> members, const FoldMerge& merge,
    int64_t elements);

}  // namespace diloco

#endif  // COORDINATOR_AGGREGATE_GRAM_STAGE_H_

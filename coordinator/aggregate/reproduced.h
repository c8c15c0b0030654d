// The same members on the same base give the same bits: whoever folds a round
// again compares. Used by recovery and by the offline tools.
#ifndef COORDINATOR_AGGREGATE_REPRODUCED_H_
#define COORDINATOR_AGGREGATE_REPRODUCED_H_

#include "absl/status/status.h"
#include "coordinator/aggregate/fold.h"
#include "coordinator/core/facts.h"

namespace diloco {

// DATA_LOSS, naming what differs, unless the fold of a round gave what was
// published.
absl::Status CheckReproduced(const VersionPublished& recorded,
                             const FoldResult& again);

}  // namespace diloco

#endif  // COORDINATOR_AGGREGATE_REPRODUCED_H_

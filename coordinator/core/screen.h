// Screens of updates against others: what an update's own bytes do not tell.
// Pure; used by the parts of Decide. What was refused, why and with which
// figures is an UpdateRefused fact.
//
// norm: an update's norm over the learning rates that its steps summed up,
//   against the median of the round's from kFewestToCompare updates on, else
//   against the median of its worker's own ones, once it has
//   kRoundsOfHistory of them. Runs when the round closes.
// replay: the digest of an update that was accepted before, its worker's own or
//   another's. Runs when the update is complete. Updates that are all zero have
//   nothing to repeat.
#ifndef COORDINATOR_CORE_SCREEN_H_
#define COORDINATOR_CORE_SCREEN_H_

#include <optional>
#include <vector>

#include "coordinator/core/machine.h"

namespace diloco {

inline constexpr size_t kFewestToCompare = 4;
inline constexpr size_t kRoundsOfHistory = 10;

// The figure of the norm screen. A worker's word on its learning rates counts
// only up to what its lease allowed; one that tells nothing is taken to have
// used that. 0: a zero update.
double NormPerLr(const Policy& policy, const Lease& lease,
                 const UpdateCommitted& update);

std::optional<UpdateRefused> ScreenReplay(const Policy& policy,
                                          const FragmentState& of,
                                          const UpdateVerifiedEvent& event);

// Those of the open round's updates that do not pass, in worker-name order. An
// evicted worker's is neither judged nor compared with.
std::vector<UpdateRefused> ScreenRound(const Policy& policy, const State& state,
                                       uint32_t fragment);

}  // namespace diloco

#endif  // COORDINATOR_CORE_SCREEN_H_

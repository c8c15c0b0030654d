// The part of Evolve that concerns rounds of a fragment. Only state.cc uses it.
#ifndef COORDINATOR_CORE_EVOLVE_ROUND_H_
#define COORDINATOR_CORE_EVOLVE_ROUND_H_

#include "absl/status/status.h"
#include "coordinator/core/state.h"

namespace diloco {

// Each checks everything first: on an error the state is unchanged.
absl::Status EvolveRound(State& state, const RoundOpened& fact);
absl::Status EvolveRound(State& state, const RoundExtended& fact);
absl::Status EvolveRound(State& state, const UpdateCommitted& fact);
absl::Status EvolveRound(State& state, const UpdateRefused& fact);
absl::Status EvolveRound(State& state, const RoundClosed& fact);
absl::Status EvolveRound(State& state, const VersionPublished& fact);

}  // namespace diloco

#endif  // COORDINATOR_CORE_EVOLVE_ROUND_H_

// The part of Evolve that concerns rounds of a fragment. Only state.cc uses it.
#ifndef COORDINATOR_CORE_EVOLVE_ROUND_H_
#define COORDINATOR_CORE_EVOLVE_ROUND_H_

#include "absl/status/status.h"
#include "coordinator/core/state.h"

namespace diloco {

// Each checks everything first: on an error the state is unchanged.
absl::Status EvolveRound(State& state, const RoundOpened& fact);
absl::Status EvolveRound(State& state, const RoundExtended& fact);
absl::Status EvolveRound(State& state, const LeaseAdded& fact);
absl::Status EvolveRound(State& state, const UpdateCommitted& fact);
absl::Status EvolveRound(State& state, const UpdateRefused& fact);
absl::Status EvolveRound(State& state, const RoundClosed& fact);
absl::Status EvolveRound(State& state, const VersionPublished& fact);

// Of the run, from those of its fragments.
uint64_t MeanFoldedTokens(const State& state);

// The same once the pending fold of this fragment is published.
uint64_t FoldedTokensAfter(const State& state, uint32_t fragment);

// Between rounds: changed settings take effect at once.
bool NoRoundOpen(const State& state);
// The boundary that they wait for may have come.
void ApplyWaitingSettings(State& state);

}  // namespace diloco

#endif  // COORDINATOR_CORE_EVOLVE_ROUND_H_

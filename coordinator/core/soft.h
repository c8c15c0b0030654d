// How events and facts move the soft state (instants and measured rates). Used
// by EvolveSoft, by the decision in the making, and by the runtime for calls
// that are no events.
#ifndef COORDINATOR_CORE_SOFT_H_
#define COORDINATOR_CORE_SOFT_H_

#include "coordinator/core/machine.h"

namespace diloco {

// Whoever sent the event was heard of; beats and uploads carry measurements.
void HearEvent(Soft& soft, const Event& event, Instant now);
void NoteFact(Soft& soft, const Fact& fact, Instant now);

// This process heard and decided nothing for `stall`: everything that waits for
// time to pass begins so much later.
void StandStill(Soft& soft, absl::Duration stall);

// When the worker was last heard of; the process's start when it was not yet.
Instant LastHeard(const Soft& soft, const std::string& worker);
// The round's instants; the process's start when the fragment has none.
Soft::Round RoundTimes(const Soft& soft, uint32_t fragment);

}  // namespace diloco

#endif  // COORDINATOR_CORE_SOFT_H_

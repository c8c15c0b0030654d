// Questions that deciding about rounds asks of policy and state: who may take
// part, for how many steps, until when. Pure; used by the parts of Decide and
// by ViewFor.
#ifndef COORDINATOR_CORE_ROUND_POLICY_H_
#define COORDINATOR_CORE_ROUND_POLICY_H_

#include <string>
#include <vector>

#include "coordinator/core/machine.h"

namespace diloco {

// No round of this fragment opens any more.
bool RoundsOver(const Policy& policy, const State& state, uint32_t fragment);
// ... of all fragments, and none is open or being folded.
bool AllRoundsDone(const Policy& policy, const State& state);

// Active but silent for `suspect_after`. A worker that was not heard of since
// this process started has the whole lease to find it again.
bool IsSuspect(const Policy& policy, const Soft& soft,
               const std::string& worker, Instant now);

struct Eligibility {
  std::vector<std::string> workers;  // In name order.
  std::vector<RoundOpened::Skipped> skipped;
};
// Active, not draining and not suspect; the other active and the lost ones
// are skipped with the reason.
Eligibility WhoIsEligible(const Policy& policy, const State& state,
                          const Soft& soft, Instant now);

// Leases of `round` for `workers`, beside those that `open` (may be null) has.
// `workers` or the round's leases must not both be empty.
std::vector<Lease> MakeLeases(const Policy& policy, const State& state,
                              const std::vector<std::string>& workers,
                              uint64_t round, const OpenRound* open);

// The fixed deadline, or 1.5 x the slowest predicted finish: at least 10 s, or
// 10 min when a worker is not measured yet. Whole milliseconds, as the journal
// keeps it.
absl::Duration DeadlineFor(const Policy& policy, const Soft& soft,
                           const std::vector<Lease>& leases);

// Why no round opens although none is open; empty when one could open now.
std::string WhyNoRound(const Policy& policy, const State& state,
                       const Soft& soft, uint32_t fragment, Instant now);

// Leased, active workers on whose update the round still waits, in name order.
std::vector<std::string> WaitedFor(const State& state, const OpenRound& open);

// "a, b and c"; "nobody" when empty.
std::string NameList(const std::vector<std::string>& names);
// Whole seconds of silence of a worker: "a (silent for 12 s)".
std::string NameWithSilence(const Soft& soft, const std::string& worker,
                            Instant now);
// Cut to what the journal keeps.
absl::Duration WholeMilliseconds(absl::Duration duration);

}  // namespace diloco

#endif  // COORDINATOR_CORE_ROUND_POLICY_H_

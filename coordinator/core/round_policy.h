// Questions that deciding about rounds asks of policy and state: who may take
// part, for how many steps, until when. Pure; used by the parts of Decide and
// by ViewFor.
#ifndef COORDINATOR_CORE_ROUND_POLICY_H_
#define COORDINATOR_CORE_ROUND_POLICY_H_

#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/eligibility.h"
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

// Steps of a round's windows, before trimming to the tokens left: the
// interval. The first window of a fragment ends at the fragment's offset, so
// that they are due one after the other; at a stop one more ends them together.
uint32_t StepsOfRound(const Policy& policy, const State& state,
                      uint32_t fragment, uint64_t round);
// Steps of each of `workers` workers: those, or fewer so that the run ends at
// train_tokens.
uint32_t RoundSteps(const Policy& policy, const State& state, uint32_t fragment,
                    uint64_t round, uint64_t workers);
// The run is stopped with this round of the fragment.
bool StopsWith(const State& state, uint32_t fragment, uint64_t round);
// No round of the fragment follows its open one, if all goes as expected.
bool IsLastRound(const Policy& policy, const State& state, uint32_t fragment);

// The leases of a round that opens.
std::vector<Lease> MakeLeases(const Policy& policy, const State& state,
                              uint32_t fragment,
                              const std::vector<Seat>& seats);
// Whole windows for `workers`, beside the leases that the open round has.
std::vector<Lease> MoreLeases(const Policy& policy, const State& state,
                              uint32_t fragment,
                              const std::vector<std::string>& workers);
// A lease that the open round does not wait for: nothing is expected of it, and
// it crosses the same stretch of the schedule as the others.
Lease LateLease(const Policy& policy, const State& state, uint32_t fragment,
                const Seat& seat);

// Until the deadline of the fragment's open round; not positive once it is
// over. Where workers wait for results, the windows of a round cannot end
// before the rounds that are due before it have ended: from then on it has the
// share of its deadline that is left of a window.
absl::Duration DeadlineLeft(const Policy& policy, const State& state,
                            const Soft& soft, uint32_t fragment, Instant now);

// Why no round opens although none is open; empty when one could open now.
std::string WhyNoRound(const Policy& policy, const State& state,
                       const Soft& soft, uint32_t fragment, Instant now);

// Updates with which a round need not wait for the others any longer than
// `sync.grace`; absent: it waits for all.
// The last round of the fragment does: what others have in their windows when
// the run ends is lost.
std::optional<size_t> QuorumOf(const Policy& policy, const State& state,
                               uint32_t fragment);
// When that grace is over; absent: the quorum is not in, or there is none.
std::optional<Instant> GraceEnds(const Policy& policy, const State& state,
                                 const Soft& soft, uint32_t fragment);

// Leased, active workers on whose update the round still waits, in name order.
std::vector<std::string> WaitedFor(const State& state, const OpenRound& open);
// Likewise those with a late lease, which it does not wait for.
std::vector<std::string> LateWorkers(const State& state, const OpenRound& open);

// A slice of the newest version whose loss is known, for probes.
std::optional<EvalView> ProbeSlice(const State& state);

// "round 5", or "round 5 of fragment 2" when there are several.
std::string RoundName(const State& state, uint32_t fragment, uint64_t round);
// "a, b and c"; "nobody" when empty.
std::string NameList(const std::vector<std::string>& names);
// Whole seconds of silence of a worker: "a (silent for 12 s)".
std::string NameWithSilence(const Soft& soft, const std::string& worker,
                            Instant now);
// Cut to what the journal keeps.
absl::Duration WholeMilliseconds(absl::Duration duration);

}  // namespace diloco

#endif  // COORDINATOR_CORE_ROUND_POLICY_H_

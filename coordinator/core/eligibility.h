// Who takes part in a round, for how many steps and until when, predicted from
// measured step times and links. Pure; used when a round opens and while one is
// open. Without measurements the predictions say less and nobody is left out:
// a coordinator that has just started falls back to that.
#ifndef COORDINATOR_CORE_ELIGIBILITY_H_
#define COORDINATOR_CORE_ELIGIBILITY_H_

#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/machine.h"

namespace diloco {

struct AutoDeadline {
  absl::Duration deadline;
  std::string reason;  // In words and figures.
};
// `sync.deadline: auto`, from the seconds in which each measured worker is
// predicted to finish a whole window, upload and evaluation included:
//   up to 3 workers   1.5 x the slowest
//   from 4 on         median + 4 MAD (median of the distances from the median),
//                     within 1.2 to 2 x the median: one slow machine does not
//                     stretch the round
// At least 10 s, at most 30 days; 10 min when nobody is measured.
AutoDeadline AutoDeadlineOf(std::vector<double> finishes);

// What a worker is to do in a round.
struct Seat {
  std::string worker;
  uint32_t steps = 0;
  uint32_t window_steps = 0;  // As in Lease.
  uint32_t held = 0;          // Known to be in the window already.
  // Of `steps`, those predicted until the round closes; 0: all of them.
  uint32_t in_round = 0;
};

struct RoundPlan {
  std::vector<Seat> seats;  // In name order, at least one.
  std::vector<RoundOpened::Skipped> skipped;
  absl::Duration deadline;  // Whole milliseconds, as the journal keeps it.
  std::string deadline_reason;
};
// A round for `workers` (in name order, not empty). Each gets the round's
// steps; under `late: carry` one that cannot make them before the deadline gets
// what is left of its window, and when that is too much as well it is skipped.
// In the last round of the run it hands in what it has by then.
// Never so many that fewer than half of the workers or `min_updates` remain:
// those nearest to the deadline stay, and `auto` makes room for them. Under
// `late: reject`, where unfinished work is lost, the slow ones get the steps
// that they can make while the others make all. The deadline is at least 10 min
// under `auto` while somebody with a seat is not measured.
// A worker evaluates before it trains. `auto` makes room for that: a slice
// takes a forward pass, at most half of a training step over as many tokens;
// at least 10 min until the first evaluation is complete. A fixed deadline is
// not compared with it, lest evaluations cost workers their seats.
RoundPlan PlanRound(const Policy& policy, const State& state, const Soft& soft,
                    uint32_t fragment, const std::vector<std::string>& workers,
                    uint64_t round);

struct LateSeat {
  Seat seat;
  std::string reason;
};
// What a worker without a lease may do in the open round, if anything. One too
// slow for a whole window before the deadline goes on in its window, under
// `late: carry`. Another one must hold the round's base version, and at least a
// quarter of the round must be left: it gets the steps that fit.
std::optional<LateSeat> LateSeatFor(const Policy& policy, const State& state,
                                    const Soft& soft, uint32_t fragment,
                                    const std::string& worker, Instant now);

// Until the open round is predicted to close: when those that it waits for have
// finished, at the latest at its deadline.
absl::Duration TimeLeft(const Policy& policy, const State& state,
                        const Soft& soft, uint32_t fragment, Instant now);

}  // namespace diloco

#endif  // COORDINATOR_CORE_ELIGIBILITY_H_

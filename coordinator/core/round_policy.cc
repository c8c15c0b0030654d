#include "coordinator/core/round_policy.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/model/fragments.h"
#include "coordinator/core/evolve_round.h"
#include "coordinator/core/soft.h"

namespace diloco {
namespace {

double ProgressOf(const Policy& policy, uint64_t tokens) {
  if (policy.train_tokens == 0) return 1.0;
  return std::min(1.0, static_cast<double>(tokens) /
                           static_cast<double>(policy.train_tokens));
}

// Of the fragment once its open round is folded, without what comes late.
uint64_t TokensExpected(const FragmentState& of) {
  uint64_t tokens = of.folded_tokens;
  for (const auto& [name, lease] : of.open->leases) {
    if (of.open->late.count(name) == 0) tokens += lease.tokens;
  }
  return tokens;
}

WindowState WindowOf(const FragmentState& of, const std::string& worker) {
  const auto found = of.windows.find(worker);
  return found == of.windows.end() ? WindowState{} : found->second;
}

Lease LeaseOf(const Policy& policy, const FragmentState& of, const Seat& seat) {
  const uint64_t per_step = std::max<uint64_t>(1, policy.batch_tokens);
  Lease lease;
  lease.worker = seat.worker;
  lease.steps = seat.steps;
  lease.window_steps = seat.window_steps;
  if (policy.late == LatePolicy::kCarry) {
    lease.carried_tokens = WindowOf(of, seat.worker).carried_tokens;
  }
  if (seat.window_steps > 0) {
    // Its leases overlap, their sum says too much: a window is handed in as
    // soon as it is full.
    lease.carried_tokens =
        std::min(lease.carried_tokens,
                 per_step * (uint64_t{seat.window_steps} + seat.held));
  }
  lease.tokens = lease.steps * per_step + lease.carried_tokens;
  return lease;
}

// Up to where the fragment is expected to be at the end of the round, after
// `in_round` steps. Never back: what a worker has crossed already shortens its
// next window's stretch of the schedule.
void SetProgress(const Policy& policy, const State& state,
                 const FragmentState& of, uint64_t expected, uint32_t in_round,
                 Lease& lease) {
  lease.progress =
      std::min(1.0, std::max({ProgressOf(policy, of.folded_tokens),
                              state.settings.progress_floor,
                              WindowOf(of, lease.worker).progress_reached}));
  lease.progress_step =
      std::max(0.0, ProgressOf(policy, expected) - lease.progress) / in_round;
}

// `expected`: tokens at the end of the round, without these leases.
std::vector<Lease> LeasesOf(const Policy& policy, const State& state,
                            const FragmentState& of,
                            const std::vector<Seat>& seats, uint64_t expected) {
  std::vector<Lease> leases;
  for (const Seat& seat : seats) {
    leases.push_back(LeaseOf(policy, of, seat));
    expected += leases.back().tokens;
  }
  for (Lease& lease : leases) {
    SetProgress(policy, state, of, expected, lease.steps, lease);
  }
  return leases;
}

// Active workers whose update is neither in nor refused, with a late lease or
// with another one.
std::vector<std::string> Undelivered(const State& state, const OpenRound& open,
                                     bool late) {
  std::vector<std::string> names;
  for (const auto& [name, lease] : open.leases) {
    const auto worker = state.workers.find(name);
    if (worker != state.workers.end() &&
        worker->second.membership == Membership::kActive &&
        (open.late.count(name) != 0) == late &&
        open.committed.count(name) == 0 && open.refused.count(name) == 0) {
      names.push_back(name);
    }
  }
  return names;
}

// As its newest beat says: it downloads theta.
bool HoldsNothing(const Soft& soft, const std::string& worker) {
  const auto found = soft.workers.find(worker);
  return found != soft.workers.end() &&
         std::any_of(found->second.windows.begin(), found->second.windows.end(),
                     [](const auto& window) {
                       return !window.second.digest.has_value();
                     });
}

// The first rounds are still being opened, and one of them waits for it: then
// they all do.
bool StartsWithTheRun(const State& state, const std::string& worker) {
  bool opening = false;
  bool waited_for = false;
  for (const FragmentState& fragment : state.fragments) {
    opening |= fragment.last_round < fragment.first_round;
    waited_for |= fragment.open.has_value() &&
                  fragment.open->round == fragment.first_round &&
                  fragment.open->leases.count(worker) != 0 &&
                  fragment.open->late.count(worker) == 0;
  }
  return opening && waited_for;
}

// Rounds are numbered alike in all fragments. When the first one's last window
// ends, the others are in the midst of the next, and hand in what there is.
uint64_t LastRoundAtStop(const State& state, uint32_t fragment) {
  return *state.stop_after_round + (fragment > 0 ? 1 : 0);
}

}  // namespace

uint32_t StepsOfRound(const Policy& policy, const State& state,
                      uint32_t fragment, uint64_t round) {
  const uint32_t interval = IntervalOfRound(policy, round);
  const auto fragments = static_cast<uint32_t>(state.fragments.size());
  if (fragments == 1) return interval;
  const uint32_t first = FirstDueStep(fragment, fragments, interval);
  if (round == state.fragments[fragment].first_round) return first;
  const bool beyond =
      state.stop_after_round.has_value() && round > *state.stop_after_round;
  return beyond && first < interval ? interval - first : interval;
}

uint32_t RoundSteps(const Policy& policy, const State& state, uint32_t fragment,
                    uint64_t round, uint64_t workers) {
  const uint64_t steps = StepsOfRound(policy, state, fragment, round);
  const uint64_t folded = state.fragments[fragment].folded_tokens;
  const uint64_t left =
      policy.train_tokens > folded ? policy.train_tokens - folded : 0;
  const uint64_t per_step = std::max<uint64_t>(
      1, workers * std::max<uint64_t>(1, policy.batch_tokens));
  const uint64_t needed = left / per_step + (left % per_step != 0 ? 1 : 0);
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(needed, 1, std::max<uint64_t>(1, steps)));
}

uint32_t IntervalOfRound(const Policy& policy, uint64_t round) {
  if (round <= policy.rounds_first && policy.interval_first > 0) {
    return policy.interval_first;
  }
  return std::max<uint32_t>(1, policy.interval);
}

bool StopsWith(const State& state, uint32_t fragment, uint64_t round) {
  return state.stop_after_round.has_value() &&
         round >= LastRoundAtStop(state, fragment);
}

bool IsLastRound(const Policy& policy, const State& state, uint32_t fragment) {
  const FragmentState& of = state.fragments[fragment];
  return StopsWith(state, fragment, of.open->round) ||
         TokensExpected(of) >= policy.train_tokens;
}

bool RoundsOver(const Policy& policy, const State& state, uint32_t fragment) {
  const FragmentState& of = state.fragments[fragment];
  return state.finished || of.folded_tokens >= policy.train_tokens ||
         StopsWith(state, fragment, of.last_round);
}

bool AllRoundsDone(const Policy& policy, const State& state) {
  if (state.fragments.empty()) return false;
  for (uint32_t i = 0; i < state.fragments.size(); ++i) {
    const FragmentState& fragment = state.fragments[i];
    if (fragment.open.has_value() || fragment.folding.has_value() ||
        !RoundsOver(policy, state, i)) {
      return false;
    }
  }
  return true;
}

bool IsSuspect(const Policy& policy, const Soft& soft,
               const std::string& worker, Instant now) {
  const auto found = soft.workers.find(worker);
  const bool heard =
      found != soft.workers.end() && found->second.last_heard.has_value();
  return now - LastHeard(soft, worker) >=
         (heard ? policy.suspect_after : policy.lease);
}

const char* StandingOf(const Policy& policy, const State& state,
                       const Soft& soft, const std::string& worker,
                       Instant now) {
  const auto found = state.workers.find(worker);
  if (found == state.workers.end()) return "unknown";
  if (found->second.membership == Membership::kActive &&
      IsSuspect(policy, soft, worker, now)) {
    return "suspect";
  }
  if (!found->second.refusal.empty()) return "refused";
  return MembershipName(found->second.membership);
}

Eligibility WhoIsEligible(const Policy& policy, const State& state,
                          const Soft& soft, Instant now) {
  Eligibility result;
  std::vector<std::string> pulling;
  for (const auto& [name, worker] : state.workers) {
    if (worker.membership == Membership::kLost) {
      result.skipped.push_back({name, "lost"});
    } else if (worker.membership != Membership::kActive) {
      continue;
    } else if (worker.draining) {
      result.skipped.push_back({name, "draining"});
    } else if (IsSuspect(policy, soft, name, now)) {
      result.skipped.push_back(
          {name, absl::StrCat("suspect: silent for ",
                              absl::ToInt64Seconds(now - LastHeard(soft, name)),
                              " s")});
    } else if (state.started && HoldsNothing(soft, name) &&
               !StartsWithTheRun(state, name)) {
      pulling.push_back(name);
    } else {
      result.workers.push_back(name);
    }
  }
  // Nobody waits for a download, but for that of the only ones there are.
  if (result.workers.empty()) {
    result.workers = std::move(pulling);
  } else {
    for (std::string& name : pulling) {
      result.skipped.push_back({std::move(name), "still without theta"});
    }
  }
  return result;
}

std::vector<Lease> MakeLeases(const Policy& policy, const State& state,
                              uint32_t fragment,
                              const std::vector<Seat>& seats) {
  const FragmentState& of = state.fragments[fragment];
  return LeasesOf(policy, state, of, seats, of.folded_tokens);
}

std::vector<Lease> MoreLeases(const Policy& policy, const State& state,
                              uint32_t fragment,
                              const std::vector<std::string>& workers) {
  const FragmentState& of = state.fragments[fragment];
  const uint32_t steps = RoundSteps(policy, state, fragment, of.open->round,
                                    workers.size() + of.open->leases.size());
  std::vector<Seat> seats;
  for (const std::string& name : workers) seats.push_back({name, steps});
  return LeasesOf(policy, state, of, seats, TokensExpected(of));
}

Lease LateLease(const Policy& policy, const State& state, uint32_t fragment,
                const Seat& seat) {
  const FragmentState& of = state.fragments[fragment];
  Lease lease = LeaseOf(policy, of, seat);
  SetProgress(policy, state, of, TokensExpected(of),
              seat.in_round > 0 ? seat.in_round : lease.steps, lease);
  return lease;
}

absl::Duration DeadlineLeft(const Policy& policy, const State& state,
                            const Soft& soft, uint32_t fragment, Instant now) {
  const FragmentState& of = state.fragments[fragment];
  absl::Duration left =
      RoundTimes(soft, fragment).deadline_from + of.open->deadline - now;
  if (!policy.exact) return left;
  for (uint32_t i = 0; i < state.fragments.size(); ++i) {
    const FragmentState& other = state.fragments[i];
    if (i == fragment) continue;
    Instant ended = RoundTimes(soft, i).closed_at;
    uint64_t due = other.due_step;
    if (other.open.has_value()) {
      if (std::make_pair(due, i) < std::make_pair(of.due_step, fragment)) {
        ended = now;
      } else {
        due -= std::min<uint64_t>(due, other.open->steps);
      }
    }
    if (due > of.due_step) continue;
    const double share =
        static_cast<double>(of.due_step - due) / of.open->steps;
    left =
        std::max(left, ended + std::min(1.0, share) * of.open->deadline - now);
  }
  return left;
}

std::string WhyNoRound(const Policy& policy, const State& state,
                       const Soft& soft, uint32_t fragment, Instant now) {
  if (state.finished) return absl::StrCat("finished: ", state.finish_reason);
  if (RoundsOver(policy, state, fragment)) {
    return "the last round is over";
  }
  if (state.paused) {
    return absl::StrCat("paused", state.pause_reason.empty() ? "" : ": ",
                        state.pause_reason);
  }
  if (!soft.no_room.empty()) return soft.no_room;
  if (state.settings.in_force != state.settings.accepted &&
      !NoRoundOpen(state)) {
    return "the settings were changed: waiting for the rounds that opened "
           "under the former ones";
  }
  const Eligibility eligibility = WhoIsEligible(policy, state, soft, now);
  const uint64_t needed =
      state.started ? 1 : std::max<uint64_t>(1, policy.wait_for);
  if (eligibility.workers.size() >= needed) return "";
  std::string why =
      state.started
          ? "waiting for workers: none is ready"
          : absl::StrCat("waiting for workers: ", eligibility.workers.size(),
                         " of ", needed, " ready");
  for (const RoundOpened::Skipped& skipped : eligibility.skipped) {
    absl::StrAppend(&why, ", ", skipped.worker, " is ", skipped.reason);
  }
  return why;
}

std::optional<size_t> QuorumOf(const Policy& policy, const State& state,
                               uint32_t fragment) {
  if (policy.quorum == 0 && policy.quorum_share <= 0) return std::nullopt;
  if (IsLastRound(policy, state, fragment)) return std::nullopt;
  const OpenRound& open = *state.fragments[fragment].open;
  const size_t waited = open.leases.size() - open.late.size();
  const size_t quorum =
      policy.quorum > 0
          ? policy.quorum
          : static_cast<size_t>(std::ceil(
                policy.quorum_share * static_cast<double>(waited) - 1e-9));
  return std::max<size_t>({1, policy.min_updates, std::min(quorum, waited)});
}

std::optional<Instant> GraceEnds(const Policy& policy, const State& state,
                                 const Soft& soft, uint32_t fragment) {
  const OpenRound& open = *state.fragments[fragment].open;
  const Soft::Round times = RoundTimes(soft, fragment);
  const std::optional<size_t> quorum = QuorumOf(policy, state, fragment);
  if (!quorum.has_value() || open.committed.size() < *quorum) {
    return std::nullopt;
  }
  // Those from before a restart count as if they had come with it.
  const size_t earlier = open.committed.size() -
                         std::min(open.committed.size(), times.arrivals.size());
  const Instant in = *quorum <= earlier ? times.started_at
                                        : times.arrivals[*quorum - earlier - 1];
  return in + policy.grace + policy.grace_share * (in - times.started_at);
}

std::vector<std::string> WaitedFor(const State& state, const OpenRound& open) {
  return Undelivered(state, open, /*late=*/false);
}

std::vector<std::string> LateWorkers(const State& state,
                                     const OpenRound& open) {
  return Undelivered(state, open, /*late=*/true);
}

std::string RoundName(const State& state, uint32_t fragment, uint64_t round) {
  return absl::StrCat("round ", round,
                      state.fragments.size() < 2
                          ? ""
                          : absl::StrCat(" of fragment ", fragment));
}

std::string NameList(const std::vector<std::string>& names) {
  if (names.empty()) return "nobody";
  std::string text = names[0];
  for (size_t i = 1; i < names.size(); ++i) {
    absl::StrAppend(&text, i + 1 == names.size() ? " and " : ", ", names[i]);
  }
  return text;
}

std::string NameWithSilence(const Soft& soft, const std::string& worker,
                            Instant now) {
  return absl::StrCat(worker, " (silent for ",
                      absl::ToInt64Seconds(now - LastHeard(soft, worker)),
                      " s)");
}

absl::Duration WholeMilliseconds(absl::Duration duration) {
  return absl::Milliseconds(absl::ToInt64Milliseconds(duration));
}

}  // namespace diloco

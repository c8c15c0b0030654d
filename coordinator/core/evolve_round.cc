#include "coordinator/core/evolve_round.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace diloco {
namespace {

template <typename F>
absl::Status Impossible(const F& fact, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(
      "fragment ", fact.fragment, " round ", fact.round, ": ", what));
}

template <typename F>
absl::StatusOr<FragmentState*> FindFragment(State& state, const F& fact) {
  if (fact.fragment >= state.fragments.size()) {
    return Impossible(fact, absl::StrCat("there are only ",
                                         state.fragments.size(), " fragments"));
  }
  return &state.fragments[fact.fragment];
}

template <typename F>
absl::StatusOr<FragmentState*> FindOpen(State& state, const F& fact) {
  ASSIGN_OR_RETURN(FragmentState * fragment, FindFragment(state, fact));
  if (!fragment->open.has_value() || fragment->open->round != fact.round) {
    return Impossible(fact, "this round is not open");
  }
  return fragment;
}

template <typename F>
absl::Status CheckLeases(const State& state, const F& fact,
                         const std::vector<Lease>& leases,
                         const OpenRound* open) {
  for (const Lease& lease : leases) {
    if (state.workers.count(lease.worker) == 0) {
      return Impossible(fact,
                        absl::StrCat("lease of unknown worker ", lease.worker));
    }
    if (lease.steps == 0 || lease.tokens <= lease.carried_tokens) {
      return Impossible(fact, absl::StrCat("empty lease of ", lease.worker));
    }
    if (open != nullptr && open->leases.count(lease.worker) != 0) {
      return Impossible(fact,
                        absl::StrCat("second lease of worker ", lease.worker));
    }
  }
  return absl::OkStatus();
}

// To the round that is open.
double EndOf(const Lease& lease) {
  return lease.progress + lease.steps * lease.progress_step;
}

// Where the round is to take the run: the furthest end of a lease that it waits
// for.
double EndOf(const OpenRound& open) {
  double end = 0;
  for (const auto& [name, lease] : open.leases) {
    if (open.late.count(name) == 0) end = std::max(end, EndOf(lease));
  }
  return end;
}

// Whoever holds the lease is expected at `end` when the round is over.
void AddLease(FragmentState& fragment, const Lease& lease, double end) {
  fragment.open->leases[lease.worker] = lease;
  double& reached = fragment.windows[lease.worker].progress_reached;
  reached = std::max(reached, end);
}

void AddLeases(FragmentState& fragment, const std::vector<Lease>& leases) {
  for (const Lease& lease : leases) AddLease(fragment, lease, EndOf(lease));
}

uint32_t StepsOf(const std::vector<Lease>& leases) {
  uint32_t steps = 1;
  for (const Lease& lease : leases) steps = std::max(steps, lease.steps);
  return steps;
}

// A fragment whose rounds ended much later than those of the others skips whole
// windows, so that it keeps its place among them.
uint64_t NextDueStep(const State& state, const FragmentState& of,
                     uint32_t steps) {
  uint64_t newest = 0;
  uint64_t window = steps;
  for (const FragmentState& fragment : state.fragments) {
    newest = std::max(newest, fragment.due_step);
    if (!fragment.open.has_value()) continue;
    window = std::max<uint64_t>(window, fragment.open->steps);
  }
  const uint64_t due = of.due_step + steps;
  return newest < due ? due : due + (newest - due) / window * window;
}

// Shared by the two verdicts on a worker's key.
template <typename F>
absl::Status CheckKeyUnused(const OpenRound& open, const F& fact,
                            bool committed = false) {
  if (open.leases.count(fact.worker) == 0) {
    return Impossible(fact, absl::StrCat(fact.worker, " holds no lease"));
  }
  if ((open.committed.count(fact.worker) != 0) != committed ||
      open.refused.count(fact.worker) != 0) {
    return Impossible(
        fact, absl::StrCat("there is a verdict on ", fact.worker, " already"));
  }
  return absl::OkStatus();
}

template <typename T>
void KeepNewest(std::vector<T>& values, size_t most) {
  if (values.size() <= most) return;
  values.erase(values.begin(), values.end() - static_cast<ptrdiff_t>(most));
}

// What later screens compare with.
void Remember(FragmentState& fragment, const RoundClosed& fact) {
  for (const auto& [name, update] : fragment.open->committed) {
    fragment.seen.push_back({update.value.digest, fact.round, name});
  }
  KeepNewest(fragment.seen, kSeenUpdates);
  for (const RoundMember& member : fact.members) {
    if (member.norm_per_lr <= 0) continue;
    std::vector<double>& norms = fragment.norm_history[member.worker];
    norms.push_back(member.norm_per_lr);
    KeepNewest(norms, kNormHistory);
  }
}

}  // namespace

uint64_t MeanFoldedTokens(const State& state) {
  uint64_t tokens = 0;
  for (const FragmentState& fragment : state.fragments) {
    tokens += fragment.folded_tokens;
  }
  return tokens / std::max<uint64_t>(1, state.fragments.size());
}

uint64_t FoldedTokensAfter(const State& state, uint32_t fragment) {
  uint64_t tokens = 0;
  for (const FragmentState& of : state.fragments) tokens += of.folded_tokens;
  for (const RoundMember& member : state.fragments[fragment].folding->members) {
    tokens += member.tokens;
  }
  return tokens / state.fragments.size();
}

bool NoRoundOpen(const State& state) {
  return std::none_of(
      state.fragments.begin(), state.fragments.end(),
      [](const FragmentState& fragment) { return fragment.open.has_value(); });
}

void ApplyWaitingSettings(State& state) {
  SettingsState& settings = state.settings;
  if (settings.in_force == settings.accepted || !NoRoundOpen(state)) return;
  settings.in_force = settings.accepted;
  ++settings.applied;
}

absl::Status EvolveRound(State& state, const RoundOpened& fact) {
  ASSIGN_OR_RETURN(FragmentState * fragment, FindFragment(state, fact));
  if (fragment->open.has_value() || fragment->folding.has_value()) {
    return Impossible(fact, "the round before it has not ended");
  }
  if (fact.round <= fragment->last_round) {
    return Impossible(fact, absl::StrCat("round ", fragment->last_round,
                                         " was there before"));
  }
  if (fact.base_version != fragment->version) {
    return Impossible(fact,
                      absl::StrCat("base version ", fact.base_version,
                                   ", but the newest is ", fragment->version));
  }
  RETURN_IF_ERROR(CheckLeases(state, fact, fact.leases, nullptr));
  OpenRound& open = fragment->open.emplace();
  open.round = fact.round;
  open.base_version = fact.base_version;
  open.deadline = fact.deadline;
  open.reason = fact.reason;
  open.steps = StepsOf(fact.leases);
  fragment->due_step = NextDueStep(state, *fragment, open.steps);
  AddLeases(*fragment, fact.leases);
  fragment->last_round = fact.round;
  state.started = true;
  return absl::OkStatus();
}

absl::Status EvolveRound(State& state, const RoundExtended& fact) {
  ASSIGN_OR_RETURN(FragmentState * fragment, FindOpen(state, fact));
  RETURN_IF_ERROR(CheckLeases(state, fact, fact.added, &*fragment->open));
  AddLeases(*fragment, fact.added);
  return absl::OkStatus();
}

absl::Status EvolveRound(State& state, const LeaseAdded& fact) {
  ASSIGN_OR_RETURN(FragmentState * fragment, FindOpen(state, fact));
  OpenRound& open = *fragment->open;
  RETURN_IF_ERROR(CheckLeases(state, fact, {fact.lease}, &open));
  // A window that outlasts the round has not crossed all of its steps then.
  AddLease(*fragment, fact.lease, std::min(EndOf(fact.lease), EndOf(open)));
  open.late.insert(fact.lease.worker);
  return absl::OkStatus();
}

absl::Status EvolveRound(State& state, const UpdateCommitted& fact) {
  ASSIGN_OR_RETURN(FragmentState * fragment, FindOpen(state, fact));
  RETURN_IF_ERROR(CheckKeyUnused(*fragment->open, fact));
  // Evolve counts this fact once it is applied.
  fragment->open->committed[fact.worker] = {fact, state.revision + 1};
  uint64_t& data_end = state.workers[fact.worker].data_end;
  data_end = std::max(data_end, fact.value.data_end);
  return absl::OkStatus();
}

absl::Status EvolveRound(State& state, const UpdateRefused& fact) {
  ASSIGN_OR_RETURN(FragmentState * fragment, FindOpen(state, fact));
  // Those that compare a round's updates judge what was committed.
  RETURN_IF_ERROR(CheckKeyUnused(*fragment->open, fact,
                                 /*committed=*/fact.screen == Screen::kNorm));
  fragment->open->committed.erase(fact.worker);
  fragment->open->refused[fact.worker] = fact;
  return absl::OkStatus();
}

absl::Status EvolveRound(State& state, const RoundClosed& fact) {
  ASSIGN_OR_RETURN(FragmentState * fragment, FindOpen(state, fact));
  const OpenRound& open = *fragment->open;
  const std::string* previous = nullptr;
  for (const RoundMember& member : fact.members) {
    const auto committed = open.committed.find(member.worker);
    if (committed == open.committed.end() ||
        committed->second.value.digest != member.digest) {
      return Impossible(
          fact, absl::StrCat("member ", member.worker,
                             " has no committed update of that digest"));
    }
    if (previous != nullptr && member.worker <= *previous) {
      return Impossible(fact, "members are not in worker-name order");
    }
    if (member.weight == 0) {
      return Impossible(fact,
                        absl::StrCat("member ", member.worker, " weighs 0"));
    }
    previous = &member.worker;
  }

  // Who delivered goes on from theta: what was not folded is discarded. What
  // the others carry is not more than their leases allowed.
  for (const auto& [name, lease] : open.leases) {
    const bool delivered =
        open.committed.count(name) != 0 || open.refused.count(name) != 0;
    fragment->windows[name].carried_tokens = delivered ? 0 : lease.tokens;
  }
  std::vector<double>& norms = fragment->norms;
  for (const RoundMember& member : fact.members) {
    const double norm = open.committed.at(member.worker).norm;
    if (std::isfinite(norm)) norms.push_back(norm);
  }
  KeepNewest(norms, kGuardNorms);
  Remember(*fragment, fact);
  for (const auto& [name, committed] : open.committed) {
    fragment->last_committed[name] = committed;
    fragment->last_refused.erase(name);
  }
  for (const auto& [name, refused] : open.refused) {
    fragment->last_refused[name] = refused;
    fragment->last_committed.erase(name);
  }
  fragment->open.reset();
  if (!fact.members.empty()) fragment->folding = fact;
  ApplyWaitingSettings(state);
  return absl::OkStatus();
}

absl::Status EvolveRound(State& state, const VersionPublished& fact) {
  ASSIGN_OR_RETURN(FragmentState * fragment, FindFragment(state, fact));
  if (!fragment->folding.has_value() ||
      fragment->folding->round != fact.round) {
    return Impossible(fact, "no fold of this round is pending");
  }
  if (fact.version != fragment->version + 1) {
    return Impossible(fact, absl::StrCat("version ", fact.version,
                                         " after version ", fragment->version));
  }
  const uint64_t tokens = FoldedTokensAfter(state, fact.fragment);
  if (fact.folded_tokens != tokens) {
    return Impossible(
        fact, absl::StrCat("folded tokens are ", tokens, ", not the recorded ",
                           fact.folded_tokens));
  }
  for (const RoundMember& member : fragment->folding->members) {
    WorkerState& worker = state.workers[member.worker];
    ++worker.rounds_folded;
    worker.fragment_tokens += member.tokens;
    worker.tokens_folded = worker.fragment_tokens / state.fragments.size();
    fragment->folded_tokens += member.tokens;
  }
  state.folded_tokens = tokens;
  fragment->version = fact.version;
  fragment->digest = fact.digest;
  fragment->folding.reset();
  return absl::OkStatus();
}

}  // namespace diloco

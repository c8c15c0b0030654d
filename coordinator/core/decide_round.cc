#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/core/decide.h"
#include "coordinator/core/evolve_round.h"
#include "coordinator/core/round_policy.h"
#include "coordinator/core/screen.h"
#include "coordinator/core/soft.h"

namespace diloco {
namespace {

// The committed updates that may be folded: an evicted worker's does not count.
std::vector<const UpdateCommitted*> Usable(const State& state,
                                           const OpenRound& open) {
  std::vector<const UpdateCommitted*> usable;
  for (const auto& [name, committed] : open.committed) {
    if (state.workers.at(name).membership != Membership::kEvicted) {
      usable.push_back(&committed);
    }
  }
  return usable;
}

// Why a leased worker is not in the fold.
std::string WhyMissing(const Draft& draft, const OpenRound& open,
                       const std::string& name) {
  const auto refused = open.refused.find(name);
  if (refused != open.refused.end()) {
    return refused->second.screen == Screen::kContent
               ? absl::StrCat(name, " (refused)")
               : absl::StrCat(name, " (refused: ", refused->second.reason, ")");
  }
  switch (draft.state().workers.at(name).membership) {
    case Membership::kActive:
      if (!IsSuspect(draft.policy(), draft.soft(), name, draft.now())) {
        return absl::StrCat(name, " (still at work)");
      }
      return NameWithSilence(draft.soft(), name, draft.now());
    case Membership::kLost:
      return NameWithSilence(draft.soft(), name, draft.now());
    case Membership::kLeft:
      return absl::StrCat(name, " (left)");
    case Membership::kEvicted:
      return absl::StrCat(name, " (evicted)");
  }
  return name;
}

// Closes with the usable updates, or void with none when `discard`.
void Close(Draft& draft, uint32_t fragment, absl::string_view why,
           bool discard) {
  const Policy& policy = draft.policy();
  const OpenRound& open = *draft.state().fragments[fragment].open;
  RoundClosed closed;
  closed.fragment = fragment;
  closed.round = open.round;
  closed.outer_lr =
      policy.outer_lr * OuterLrFactor(policy.outer_schedule, open.round);
  closed.outer_momentum = policy.outer_momentum;
  closed.nesterov = policy.nesterov;
  closed.merge = policy.merge;
  closed.duration = WholeMilliseconds(
      draft.now() - RoundTimes(draft.soft(), fragment).started_at);
  double loss_sum = 0;
  double loss_tokens = 0;
  if (!discard) {
    for (const UpdateCommitted* update : Usable(draft.state(), open)) {
      RoundMember& member = closed.members.emplace_back();
      member.worker = update->worker;
      member.digest = update->value.digest;
      member.tokens =
          std::min(update->value.tokens, open.leases.at(update->worker).tokens);
      member.weight =
          policy.weighting == Weighting::kTokens ? member.tokens : 1;
      member.norm_per_lr =
          NormPerLr(policy, open.leases.at(update->worker), *update);
      loss_sum += update->value.loss * static_cast<double>(member.tokens);
      loss_tokens += static_cast<double>(member.tokens);
    }
  }
  if (loss_tokens > 0) closed.loss = loss_sum / loss_tokens;
  std::vector<std::string> missing;
  for (const auto& [name, lease] : open.leases) {
    const bool in_fold = std::any_of(
        closed.members.begin(), closed.members.end(),
        [&](const RoundMember& member) { return member.worker == name; });
    // Who came late and has not delivered was not waited for.
    const bool delivered =
        open.committed.count(name) != 0 || open.refused.count(name) != 0;
    if (in_fold || (open.late.count(name) != 0 && !delivered)) continue;
    closed.missing.push_back(name);
    missing.push_back(WhyMissing(draft, open, name));
  }
  closed.reason = std::string(why);
  if (!missing.empty()) {
    absl::StrAppend(&closed.reason, "; missing: ", NameList(missing));
  }
  const std::vector<std::string> late = LateWorkers(draft.state(), open);
  if (!late.empty()) {
    absl::StrAppend(&closed.reason,
                    "; still in their windows: ", NameList(late));
  }
  draft.Say(absl::StrCat(
      RoundName(draft.state(), fragment, closed.round),
      closed.members.empty() ? " void: " : " closed: ", closed.reason));
  draft.Add(std::move(closed));
}

void Extend(Draft& draft, uint32_t fragment,
            const std::vector<std::string>& joiners, absl::string_view why) {
  const OpenRound& open = *draft.state().fragments[fragment].open;
  RoundExtended extended;
  extended.fragment = fragment;
  extended.round = open.round;
  extended.added = MoreLeases(draft.policy(), draft.state(), fragment, joiners);
  extended.reason = std::string(why);
  draft.Say(absl::StrCat(RoundName(draft.state(), fragment, open.round),
                         " extended: ", why));
  draft.Add(std::move(extended));
}

// Eligible workers that have no lease in the round.
std::vector<std::string> Joiners(const Draft& draft, const OpenRound& open) {
  std::vector<std::string> joiners;
  for (std::string& name :
       WhoIsEligible(draft.policy(), draft.state(), draft.soft(), draft.now())
           .workers) {
    if (open.leases.count(name) == 0) joiners.push_back(std::move(name));
  }
  return joiners;
}

// An active worker whose update was refused can only go on in a new round.
bool RefusedWorkerIsActive(const State& state, const OpenRound& open) {
  return std::any_of(open.refused.begin(), open.refused.end(),
                     [&](const auto& refused) {
                       return state.workers.at(refused.first).membership ==
                              Membership::kActive;
                     });
}

bool GraceIsOver(const Draft& draft, uint32_t fragment) {
  const std::optional<Instant> ends =
      GraceEnds(draft.policy(), draft.state(), draft.soft(), fragment);
  return ends.has_value() && draft.now() >= *ends;
}

void CloseIfDue(Draft& draft, uint32_t fragment) {
  const OpenRound& open = *draft.state().fragments[fragment].open;
  const Policy& policy = draft.policy();
  const std::vector<std::string> waited = WaitedFor(draft.state(), open);
  const std::vector<std::string> late = LateWorkers(draft.state(), open);
  const bool overdue =
      DeadlineLeft(policy, draft.state(), draft.soft(), fragment,
                   draft.now()) <= absl::ZeroDuration();
  if (waited.empty() || overdue || GraceIsOver(draft, fragment)) {
    for (UpdateRefused& refused :
         ScreenRound(policy, draft.state(), fragment)) {
      SayRefused(draft, refused);
      draft.Add(std::move(refused));
    }
  }
  const size_t usable = Usable(draft.state(), open).size();
  const size_t needed = std::max<uint32_t>(1, policy.min_updates);
  const std::string so_far = absl::StrCat(
      usable, " of ", open.leases.size() - late.size(), " updates in");

  if (usable >= needed) {
    if (waited.empty()) {
      Close(draft, fragment, so_far, /*discard=*/false);
    } else if (overdue) {
      Close(draft, fragment, absl::StrCat("deadline, ", so_far),
            /*discard=*/false);
    } else if (GraceIsOver(draft, fragment)) {
      Close(draft, fragment, absl::StrCat("quorum and grace, ", so_far),
            /*discard=*/false);
    }
    return;
  }

  const std::string too_few =
      absl::StrCat(so_far, ", sync.min_updates is ", needed);
  const std::vector<std::string> joiners = Joiners(draft, open);
  if (waited.empty() && !joiners.empty()) {
    Extend(draft, fragment, joiners,
           absl::StrCat(too_few, " and nobody with a lease is left; now also ",
                        NameList(joiners)));
    return;
  }
  const bool stuck = waited.empty() && late.empty() &&
                     RefusedWorkerIsActive(draft.state(), open);
  if (stuck && usable == 0) {
    Close(draft, fragment, "every update was refused", /*discard=*/true);
    return;
  }
  if (!overdue) return;
  switch (policy.short_round) {
    case ShortRound::kExtend:
      if (stuck) {
        Close(draft, fragment,
              absl::StrCat("deadline, ", too_few,
                           ", and a refused worker needs a new round"),
              /*discard=*/true);
        return;
      }
      // With nobody to wait for it stays as it is; whoever comes extends it.
      if (waited.empty() && late.empty() && joiners.empty()) return;
      Extend(draft, fragment, joiners,
             absl::StrCat("deadline, ", too_few, "; waiting for ",
                          !waited.empty() ? NameList(waited) : NameList(late),
                          joiners.empty() ? ""
                                          : absl::StrCat(", now also ",
                                                         NameList(joiners))));
      return;
    case ShortRound::kFold:
      Close(draft, fragment, absl::StrCat("deadline, ", too_few),
            /*discard=*/false);
      return;
    case ShortRound::kVoid:
      Close(draft, fragment, absl::StrCat("deadline, ", too_few),
            /*discard=*/true);
      return;
  }
}

std::string WithoutText(const std::vector<RoundOpened::Skipped>& skipped) {
  std::string text;
  for (const RoundOpened::Skipped& without : skipped) {
    absl::StrAppend(&text, "; without ", without.worker, ": ", without.reason);
  }
  return text;
}

void Open(Draft& draft, uint32_t fragment) {
  const FragmentState& of = draft.state().fragments[fragment];
  Eligibility eligibility =
      WhoIsEligible(draft.policy(), draft.state(), draft.soft(), draft.now());
  RoundOpened opened;
  opened.fragment = fragment;
  opened.round = of.last_round + 1;
  opened.base_version = of.version;
  RoundPlan plan = PlanRound(draft.policy(), draft.state(), draft.soft(),
                             fragment, eligibility.workers, opened.round);
  opened.leases =
      MakeLeases(draft.policy(), draft.state(), fragment, plan.seats);
  opened.skipped = std::move(eligibility.skipped);
  for (RoundOpened::Skipped& slow : plan.skipped) {
    opened.skipped.push_back(std::move(slow));
  }
  opened.deadline = plan.deadline;
  uint32_t steps = 0;
  for (const Lease& lease : opened.leases) steps = std::max(steps, lease.steps);
  opened.reason = opened.leases.size() == 1
                      ? absl::StrCat("1 worker, ", steps, " steps")
                      : absl::StrCat(opened.leases.size(), " workers, ", steps,
                                     " steps each");
  const uint32_t whole =
      StepsOfRound(draft.policy(), draft.state(), fragment, opened.round);
  if (steps < whole) {
    absl::StrAppend(&opened.reason, " instead of ", whole,
                    " to end at train.tokens");
  } else if (whole < IntervalOfRound(draft.policy(), opened.round)) {
    absl::StrAppend(&opened.reason, opened.round == of.first_round
                                        ? ", up to the fragment's offset"
                                        : ", to end with the first fragment");
  }
  for (const Lease& lease : opened.leases) {
    if (lease.steps == steps) continue;
    absl::StrAppend(
        &opened.reason, ", ", lease.worker, " ", lease.steps,
        lease.window_steps > 0 ? ", the rest of its window" : ", which fit");
  }
  absl::StrAppend(&opened.reason, "; deadline ",
                  absl::ToDoubleSeconds(plan.deadline),
                  " s: ", plan.deadline_reason, WithoutText(opened.skipped));
  draft.Say(absl::StrCat(RoundName(draft.state(), fragment, opened.round),
                         " opened: ", opened.reason));
  draft.Add(std::move(opened));
}

}  // namespace

absl::Status OnEvent(Draft& draft, const FoldDoneEvent& event) {
  VersionPublished published = event.published;
  if (published.fragment >= draft.state().fragments.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "fold of fragment ", published.fragment, ", which is not there"));
  }
  const FragmentState& of = draft.state().fragments[published.fragment];
  if (!of.folding.has_value() || of.folding->round != published.round ||
      published.version != of.version + 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "fold of fragment ", published.fragment, " round ", published.round,
        " to version ", published.version, ", but the pending one is ",
        of.folding.has_value() ? absl::StrCat("round ", of.folding->round)
                               : std::string("none"),
        " and the newest version ", of.version));
  }
  published.folded_tokens =
      FoldedTokensAfter(draft.state(), published.fragment);
  draft.Add(std::move(published));
  return absl::OkStatus();
}

void CloseDueRounds(Draft& draft) {
  for (uint32_t i = 0; i < draft.state().fragments.size(); ++i) {
    if (draft.state().fragments[i].open.has_value()) CloseIfDue(draft, i);
  }
}

void OpenDueRounds(Draft& draft) {
  for (uint32_t i = 0; i < draft.state().fragments.size(); ++i) {
    const FragmentState& of = draft.state().fragments[i];
    if (of.open.has_value() || of.folding.has_value()) continue;
    if (WhyNoRound(draft.policy(), draft.state(), draft.soft(), i, draft.now())
            .empty()) {
      Open(draft, i);
    }
  }
}

void LeaseLateWorkers(Draft& draft) {
  if (draft.state().paused) return;
  for (uint32_t i = 0; i < draft.state().fragments.size(); ++i) {
    if (!draft.state().fragments[i].open.has_value()) continue;
    for (const std::string& name :
         Joiners(draft, *draft.state().fragments[i].open)) {
      const std::optional<LateSeat> late = LateSeatFor(
          draft.policy(), draft.state(), draft.soft(), i, name, draft.now());
      if (!late.has_value()) continue;
      const OpenRound& open = *draft.state().fragments[i].open;
      LeaseAdded added;
      added.fragment = i;
      added.round = open.round;
      added.lease = LateLease(draft.policy(), draft.state(), i, late->seat);
      added.reason = late->reason;
      draft.Say(absl::StrCat(RoundName(draft.state(), i, open.round), ": ",
                             name, " ", added.reason));
      draft.Add(std::move(added));
    }
  }
}

}  // namespace diloco

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/machine.h"
#include "coordinator/core/round_policy.h"
#include "coordinator/core/soft.h"

namespace diloco {
namespace {

RunPhase PhaseOf(const State& state) {
  if (state.finished) return RunPhase::kFinished;
  if (state.paused) return RunPhase::kPaused;
  return state.started ? RunPhase::kRunning : RunPhase::kWaiting;
}

void Note(std::string& notice, absl::string_view text) {
  if (text.empty()) return;
  if (!notice.empty()) notice += "; ";
  absl::StrAppend(&notice, text);
}

// One that only the close of its round found out is told of afterwards.
void TellRefused(const UpdateRefused& refused, std::string& notice) {
  Note(notice, absl::StrCat("the update of ", refused.worker, " in round ",
                            refused.round, " was refused: ", refused.reason));
}

void ShowFragment(const Policy& policy, const State& state, const Soft& soft,
                  const std::string& worker, uint32_t fragment, Instant now,
                  WorkerView& view) {
  const FragmentState& of = state.fragments[fragment];
  const auto before = of.last_refused.find(worker);
  if (before != of.last_refused.end() &&
      before->second.screen == Screen::kNorm) {
    TellRefused(before->second, view.notice);
  }
  if (of.folding.has_value()) {
    Note(view.notice,
         absl::StrCat(RoundName(state, fragment, of.folding->round),
                      " is being folded"));
    return;
  }
  if (!of.open.has_value()) {
    const std::string why = WhyNoRound(policy, state, soft, fragment, now);
    // Mostly the same for all fragments.
    if (!absl::StrContains(view.notice, why)) Note(view.notice, why);
    return;
  }
  const std::vector<std::string> waited = WaitedFor(state, *of.open);
  Note(view.notice,
       absl::StrCat(RoundName(state, fragment, of.open->round), " waits for ",
                    waited.empty() ? "more workers" : NameList(waited)));
  const auto refused = of.open->refused.find(worker);
  if (refused != of.open->refused.end()) {
    TellRefused(refused->second, view.notice);
    return;
  }
  const auto lease = of.open->leases.find(worker);
  if (lease == of.open->leases.end()) return;
  LeaseView& shown = view.leases.emplace_back();
  shown.fragment = fragment;
  shown.round = of.open->round;
  shown.base_version = of.open->base_version;
  shown.base_digest = of.digest;
  shown.lease = lease->second;
  shown.deadline_left = std::max(
      absl::ZeroDuration(), DeadlineLeft(policy, state, soft, fragment, now));
  shown.delivered = of.open->committed.count(worker) != 0;
  shown.last = IsLastRound(policy, state, fragment);
  shown.due_step = of.due_step;
  shown.round_steps = of.open->steps;
}

}  // namespace

WorkerView ViewFor(const Policy& policy, const State& state, const Soft& soft,
                   const std::string& worker, Instant now) {
  WorkerView view;
  view.phase = PhaseOf(state);
  for (uint32_t i = 0; i < state.fragments.size(); ++i) {
    ShowFragment(policy, state, soft, worker, i, now, view);
  }
  // Asked for, but not yet seen in what happens.
  const bool open = std::any_of(
      state.fragments.begin(), state.fragments.end(),
      [](const FragmentState& of) { return of.open || of.folding; });
  if (state.paused && open) {
    Note(view.notice, absl::StrCat("no round opens after it: paused",
                                   state.pause_reason.empty() ? "" : ": ",
                                   state.pause_reason));
  }
  if (state.stop_after_round.has_value() && !state.finished) {
    Note(
        view.notice,
        absl::StrCat("the run ends after round ", *state.stop_after_round,
                     state.stop_reason.empty() ? "" : ": ", state.stop_reason));
  }
  const auto known = state.workers.find(worker);
  if (known == state.workers.end() ||
      known->second.membership == Membership::kEvicted) {
    view.leases.clear();
    return view;
  }
  view.drain = known->second.draining;
  view.probe = ProbeSlice(state);
  if (state.eval.has_value()) {
    for (uint32_t i = 0; i < state.eval->slices.size(); ++i) {
      const EvalSlice& slice = state.eval->slices[i];
      if (slice.worker != worker || slice.loss_sum.has_value()) continue;
      view.evals.push_back({state.eval->version, i, slice.first_window,
                            slice.windows, state.eval->versions});
    }
  }
  return view;
}

}  // namespace diloco

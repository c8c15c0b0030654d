#include "worker/core/session_machine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/core/schedule.h"

namespace diloco {
namespace {

using Kind = Action::Kind;

// What becomes of the steps of a round that is over. An update whose receipt
// has not come may have been in it.
std::string FateOf(const HeldFragment& held, bool carry) {
  const Window& window = held.window;
  return absl::StrCat(
      "round ", window.round,
      IsTaken(held) ? " closed before the receipt of this worker's update came;"
                      " unless it was in time, its "
                    : " closed without this worker; its ",
      window.steps, carry ? " steps are carried on" : " steps are dropped");
}

std::string OnTheWay(const HeldFragment& held) {
  return absl::StrCat("the update of round ", held.window.round,
                      " or its result is on the way");
}

bool WindowIsOver(const HeldFragment& held, const ViewInput::Lease& lease) {
  return IsTaken(held) || StepsToGo(held, lease) == 0;
}

bool HasUnsent(const HeldFragment& held) {
  return held.window.steps > 0 && !held.window.delivered;
}

// How many steps are trained before the result of the window is there.
uint32_t StepsAhead(const HeldFragment& held, const SyncRules& rules) {
  if (held.window.last) return 0;
  // Not without end: what is trained on an old base gets staler.
  return rules.slip ? rules.overlap + held.window.steps_done : rules.overlap;
}

// A step may be trained while the update is under way.
bool MayRunAhead(const HeldFragment& held, const SyncRules& rules) {
  return IsTaken(held) && held.ahead.steps < StepsAhead(held, rules);
}

// A newer version may be applied now.
bool MayCatchUp(const HeldFragment& held, const ViewInput& view,
                const SyncRules& rules) {
  if (held.busy) return false;
  return view.phase == ViewInput::Phase::kFinished || rules.slip ||
         !MayRunAhead(held, rules);
}

struct Part {
  const HeldFragment& held;
  const ViewInput::Fragment& seen;
};

bool IsWorking(const Part& part) {
  return part.seen.lease.has_value() && !part.seen.lease->delivered &&
         part.seen.lease->base_version == *part.held.version;
}

// How far a worker is on the run's axis of steps.
struct Standing {
  // As its windows say it: the furthest. One that outlasts rounds says nothing.
  int64_t step = 0;
  // The last in the order of rounds whose result no step is trained before:
  // due step and fragment.
  std::pair<uint64_t, uint32_t> waits_for{0, 0};
};

Standing StandingOf(const LocalState& local, const ViewInput& view,
                    const SyncRules& rules) {
  Standing standing;
  for (uint32_t i = 0; i < local.fragments.size(); ++i) {
    const HeldFragment& held = local.fragments[i];
    const std::optional<ViewInput::Lease>& lease = view.fragments[i].lease;
    if (!lease.has_value() || lease->due_step == 0 || lease->steps == 0 ||
        lease->round != held.window.round) {
      continue;
    }
    const auto due = static_cast<int64_t>(lease->due_step);
    const uint64_t pace = std::max<uint64_t>(1, lease->round_steps);
    if (IsTaken(held)) {
      const uint64_t since = held.ahead.steps * pace / lease->steps;
      standing.step =
          std::max(standing.step, due + static_cast<int64_t>(since));
      if (!MayRunAhead(held, rules)) {
        standing.waits_for =
            std::max(standing.waits_for, std::make_pair(lease->due_step, i));
      }
    } else if (lease->window_steps == 0) {
      const uint64_t to_go = StepsToGo(held, *lease) * pace;
      const uint64_t left = to_go / lease->steps + (to_go % lease->steps != 0);
      standing.step = std::max(standing.step, due - static_cast<int64_t>(left));
    }
  }
  return standing;
}

// Its turn has come although its window is not full.
bool IsOverdue(const HeldFragment& held, uint32_t fragment,
               const ViewInput::Lease& lease, const Standing& standing) {
  if (lease.due_step == 0 || held.window.steps == 0) return false;
  if (std::make_pair(lease.due_step, fragment) < standing.waits_for) {
    return true;
  }
  // The steps of a last window end the run.
  return !lease.last && lease.window_steps == 0 &&
         standing.step >= static_cast<int64_t>(lease.due_step);
}

// It takes on nothing new: no version, evaluation or round.
Action NextOfLeaving(const LocalState& local, const ViewInput& view) {
  Action action;
  action.kind = Kind::kLeave;
  for (uint32_t i = 0; i < local.fragments.size(); ++i) {
    const Part part{local.fragments[i], view.fragments[i]};
    const Window& window = part.held.window;
    const bool at_work = part.held.version.has_value() && !part.seen.damaged &&
                         IsWorking(part) &&
                         part.seen.lease->round == window.round &&
                         !window.delivered;
    if (!at_work) continue;
    if (part.held.busy) {
      if (action.kind == Kind::kLeave) action.kind = Kind::kWait;
      continue;
    }
    action.fragment = i;
    if (WindowIsOver(part.held, *part.seen.lease)) {
      action.kind = Kind::kSubmit;
      return action;
    }
    if (view.leaving == Leaving::kAfterWindow) {
      action.kind = Kind::kStep;
    } else if (window.steps > 0) {
      action.kind = Kind::kSubmit;
      action.reason =
          absl::StrCat("hands in ", window.steps, " steps of round ",
                       window.round, ", which has ", part.seen.lease->steps);
      return action;
    }
  }
  return action;
}

// What a fragment asks for that nothing newer is published of: kBegin, kSubmit,
// kStep or kWait.
Action NextOfWindow(const Part& part, uint32_t fragment, const ViewInput& view,
                    const SyncRules& rules, const Standing& standing) {
  Action action;
  const HeldFragment& held = part.held;
  const std::optional<ViewInput::Lease>& lease = part.seen.lease;
  const bool working = IsWorking(part);
  const bool to_hand_in = working && lease->round == held.window.round &&
                          IsTaken(held) && !held.window.delivered && !held.busy;
  if (!to_hand_in && view.phase == ViewInput::Phase::kRunning &&
      MayRunAhead(held, rules)) {
    action.kind = Kind::kStep;
    return action;
  }
  if (held.busy) {
    action.reason = OnTheWay(held);
    return action;
  }
  if (!working) {
    action.reason = lease.has_value() && lease->delivered
                        ? absl::StrCat("update of round ", lease->round,
                                       " delivered; waiting for the others")
                        : "no lease in the open round";
    return action;
  }
  if (held.window.round != lease->round) {
    // On the same base: the round before was void. What was delivered into it
    // is discarded, and so is what was refused.
    const bool carry = held.window.round == 0 ||
                       (HasUnsent(held) && rules.late == LatePolicy::kCarry);
    action.kind = Kind::kBegin;
    action.carry = carry;
    if (held.window.round != 0 && HasUnsent(held)) {
      action.reason = FateOf(held, carry);
    }
    return action;
  }
  if (held.window.delivered) {
    action.reason = absl::StrCat("update of round ", lease->round,
                                 " is settled; waiting for the others");
    return action;
  }
  if (WindowIsOver(held, *lease)) {
    action.kind = Kind::kSubmit;
  } else if (IsOverdue(held, fragment, *lease, standing)) {
    action.kind = Kind::kSubmit;
    action.reason = absl::StrCat(
        "hands in ", held.window.steps, " steps of round ", lease->round, ", ",
        StepsToGo(held, *lease), " before its window is full: it is its turn");
  } else {
    action.kind = Kind::kStep;
  }
  return action;
}

std::string Named(std::string reason, uint32_t fragment, size_t fragments) {
  if (fragments == 1 || reason.empty()) return reason;
  return absl::StrCat(reason, " (fragment ", fragment, ")");
}

void Append(Window& window, const Window& more) {
  window.tokens += more.tokens;
  window.steps += more.steps;
  window.loss_sum += more.loss_sum;
  window.losses += more.losses;
  window.lr_sum += more.lr_sum;
}

bool EvalIsDue(const LocalState& local, const ViewInput::Eval& eval) {
  const auto& done = local.evaluated;
  if (std::find(done.begin(), done.end(), eval.slice) != done.end()) {
    return false;
  }
  if (eval.versions.empty()) {
    return eval.version == *local.fragments[0].version;
  }
  return std::equal(eval.versions.begin(), eval.versions.end(),
                    local.fragments.begin(), local.fragments.end(),
                    [](uint64_t version, const HeldFragment& held) {
                      return version == held.version;
                    });
}

}  // namespace

bool IsTaken(const HeldFragment& fragment) {
  return fragment.window.round != 0 &&
         (fragment.window.delivered ||
          fragment.taken_round == fragment.window.round);
}

bool WindowFits(uint32_t steps, double step_seconds, double hand_in_seconds,
                absl::Duration left) {
  if (step_seconds <= 0 || hand_in_seconds <= 0) return false;
  return steps * step_seconds + hand_in_seconds <= absl::ToDoubleSeconds(left);
}

uint32_t StepsToGo(const HeldFragment& fragment,
                   const ViewInput::Lease& lease) {
  const Window& window = fragment.window;
  uint32_t left = lease.steps - std::min(lease.steps, window.steps_done);
  if (lease.window_steps > 0) {
    left = std::min(
        left, lease.window_steps - std::min(lease.window_steps, window.steps));
  }
  return left;
}

Action NextAction(const LocalState& local, const ViewInput& view,
                  const SyncRules& rules) {
  Action action;
  const size_t fragments = local.fragments.size();
  if (view.phase == ViewInput::Phase::kFinished &&
      view.leaving != Leaving::kNo) {
    action.kind = Kind::kFinish;
    action.reason = "the run is finished";
    return action;
  }
  if (view.leaving != Leaving::kNo) return NextOfLeaving(local, view);
  for (uint32_t i = 0; i < fragments; ++i) {
    const ViewInput::Fragment& seen = view.fragments[i];
    if (local.fragments[i].version.has_value() && !seen.damaged) continue;
    action.kind = Kind::kPull;
    action.fragment = i;
    action.version = seen.version;
    action.reason =
        seen.damaged ? Named(absl::StrCat("the copy of version ", seen.version,
                                          " is not the one published"),
                             i, fragments)
                     : "nothing held yet";
    return action;
  }
  for (uint32_t i = 0; i < fragments; ++i) {
    const HeldFragment& held = local.fragments[i];
    const uint64_t version = view.fragments[i].version;
    if (version <= *held.version) continue;
    if (held.busy && view.phase == ViewInput::Phase::kFinished) {
      action.reason = Named(OnTheWay(held), i, fragments);
      return action;
    }
    if (!MayCatchUp(held, view, rules)) continue;
    const bool unsent = HasUnsent(held);
    action.kind = Kind::kCatchUp;
    action.fragment = i;
    action.version = version;
    action.carry = unsent && rules.late == LatePolicy::kCarry;
    action.reason =
        Named(unsent ? FateOf(held, action.carry)
                     : absl::StrCat("version ", version, " is published"),
              i, fragments);
    return action;
  }
  if (local.probe_due && view.phase != ViewInput::Phase::kFinished) {
    action.kind = Kind::kProbe;
    action.version = ThetaVersion(local);
    return action;
  }
  for (const ViewInput::Eval& eval : view.evals) {
    if (!EvalIsDue(local, eval)) continue;
    action.kind = Kind::kEvaluate;
    action.slice = eval.slice;
    action.version = eval.version;
    return action;
  }
  if (view.phase == ViewInput::Phase::kFinished) {
    action.kind = Kind::kFinish;
    action.reason = "the run is finished";
    return action;
  }
  // What a fragment needs done comes first, then one that must wait; a step is
  // one of all. One that nothing is asked of, as its rounds are over or were
  // opened without this worker, holds up no other.
  action.kind = Kind::kStep;
  const Standing standing = StandingOf(local, view, rules);
  bool steps = false;
  std::optional<Action> idle;
  for (uint32_t i = 0; i < fragments; ++i) {
    const Part part{local.fragments[i], view.fragments[i]};
    Action next = NextOfWindow(part, i, view, rules, standing);
    if (next.kind == Kind::kStep) {
      steps = true;
      continue;
    }
    if (next.kind == Kind::kWait && action.kind == Kind::kWait) continue;
    next.fragment = i;
    next.reason = Named(std::move(next.reason), i, fragments);
    if (!part.seen.lease.has_value() && !IsTaken(part.held)) {
      if (!idle.has_value()) idle = std::move(next);
      continue;
    }
    action = std::move(next);
    if (action.kind != Kind::kWait) return action;
  }
  if (action.kind == Kind::kStep && !steps && idle.has_value()) return *idle;
  return action;
}

void BeginWindow(HeldFragment& fragment, const ViewInput::Lease& lease,
                 bool carry) {
  Window& window = fragment.window;
  if (carry) {
    Append(window, fragment.ahead);
  } else {
    window = Window{};
  }
  fragment.ahead = Window{};
  // Steps that were trained before any lease came belong to this one.
  if (window.round != 0) window.steps_done = 0;
  window.round = lease.round;
  window.base_version = lease.base_version;
  window.delivered = false;
  window.last = lease.last;
  window.progress = lease.progress;
  window.progress_step = lease.progress_step;
}

void FinishCatchUp(HeldFragment& fragment, uint64_t version, bool carry) {
  fragment.version = version;
  Window& window = fragment.window;
  if (carry) {
    Append(window, fragment.ahead);
    window.steps_done =
        fragment.ahead.steps_done + (window.round == 0 ? window.steps_done : 0);
    window.round = 0;
  } else {
    // Local values that became theta itself have nothing of it.
    window = window.delivered && !window.last ? fragment.ahead : Window{};
  }
  fragment.ahead = Window{};
}

void ForgetTake(HeldFragment& fragment) {
  Append(fragment.window, fragment.ahead);
  fragment.ahead = Window{};
  fragment.taken_round = 0;
}

void CountStep(LocalState& local, uint64_t tokens, double lr,
               std::optional<double> loss) {
  for (HeldFragment& fragment : local.fragments) {
    Window& window = IsTaken(fragment) ? fragment.ahead : fragment.window;
    ++window.steps_done;
    ++window.steps;
    window.tokens += tokens;
    if (!loss.has_value()) continue;
    window.loss_sum += *loss;
    ++window.losses;
    window.lr_sum += lr;
  }
}

uint64_t ThetaVersion(const LocalState& local) {
  uint64_t sum = 0;
  for (const HeldFragment& fragment : local.fragments) {
    sum += fragment.version.value_or(0);
  }
  return sum;
}

double ProgressOfNextStep(const LocalState& local) {
  double furthest = 0;
  for (const HeldFragment& fragment : local.fragments) {
    const Window& window = fragment.window;
    furthest = std::max(
        furthest, ProgressAtStep(window.progress, window.progress_step,
                                 window.steps_done + fragment.ahead.steps));
  }
  return furthest;
}

}  // namespace diloco

#include "worker/core/session_machine.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace diloco {
namespace {

// What becomes of the steps of a round that is over.
std::string FateOf(const Window& window, bool carry) {
  return absl::StrCat("round ", window.round,
                      " closed without this worker; its ", window.steps,
                      carry ? " steps are carried on" : " steps are dropped");
}

bool WindowIsOver(const LocalState& local, const ViewInput::Lease& lease) {
  const bool full =
      lease.window_steps > 0 && local.window.steps >= lease.window_steps;
  return full || local.taken_round == lease.round ||
         local.window.steps_done >= lease.steps;
}

// It takes on nothing new: no version, evaluation or round.
Action NextOfLeaving(const LocalState& local, const ViewInput& view) {
  Action action;
  action.kind = Action::Kind::kLeave;
  const Window& window = local.window;
  const bool at_work = local.version.has_value() && !view.damaged &&
                       view.lease.has_value() && !view.lease->delivered &&
                       view.lease->base_version == *local.version &&
                       view.lease->round == window.round && !window.delivered;
  if (!at_work) return action;
  if (WindowIsOver(local, *view.lease)) {
    action.kind = Action::Kind::kSubmit;
  } else if (view.leaving == Leaving::kAfterWindow) {
    action.kind = Action::Kind::kStep;
  } else if (window.steps > 0) {
    action.kind = Action::Kind::kSubmit;
    action.reason =
        absl::StrCat("hands in ", window.steps, " steps of round ",
                     window.round, ", which has ", view.lease->steps);
  }
  return action;
}

}  // namespace

bool WindowFits(uint32_t steps, double step_seconds, double hand_in_seconds,
                absl::Duration left) {
  if (step_seconds <= 0 || hand_in_seconds <= 0) return false;
  return steps * step_seconds + hand_in_seconds <= absl::ToDoubleSeconds(left);
}

Action NextAction(const LocalState& local, const ViewInput& view,
                  LatePolicy late) {
  Action action;
  if (view.phase == ViewInput::Phase::kFinished &&
      view.leaving != Leaving::kNo) {
    action.kind = Action::Kind::kFinish;
    action.reason = "the run is finished";
    return action;
  }
  if (view.leaving != Leaving::kNo) return NextOfLeaving(local, view);
  if (!local.version.has_value() || view.damaged) {
    action.kind = Action::Kind::kPull;
    action.version = view.version;
    action.reason = view.damaged
                        ? absl::StrCat("the copy of version ", view.version,
                                       " is not the one published")
                        : "nothing held yet";
    return action;
  }
  const bool unsent = local.window.steps > 0 && !local.window.delivered;
  const bool carry = unsent && late == LatePolicy::kCarry;
  if (view.version > *local.version) {
    action.kind = Action::Kind::kCatchUp;
    action.version = view.version;
    action.carry = carry;
    action.reason =
        unsent ? FateOf(local.window, carry)
               : absl::StrCat("version ", view.version, " is published");
    return action;
  }
  if (local.probe_due && view.phase != ViewInput::Phase::kFinished) {
    action.kind = Action::Kind::kProbe;
    action.version = *local.version;
    return action;
  }
  for (const ViewInput::Eval& eval : view.evals) {
    const bool done = std::find(local.evaluated.begin(), local.evaluated.end(),
                                eval.slice) != local.evaluated.end();
    if (eval.version == *local.version && !done) {
      action.kind = Action::Kind::kEvaluate;
      action.slice = eval.slice;
      action.version = eval.version;
      return action;
    }
  }
  if (view.phase == ViewInput::Phase::kFinished) {
    action.kind = Action::Kind::kFinish;
    action.reason = "the run is finished";
    return action;
  }
  const bool working = view.lease.has_value() && !view.lease->delivered &&
                       view.lease->base_version == *local.version;
  if (!working) {
    action.reason = view.lease.has_value() && view.lease->delivered
                        ? absl::StrCat("update of round ", view.lease->round,
                                       " delivered; waiting for the others")
                        : "no lease in the open round";
    return action;
  }
  if (local.window.round != view.lease->round) {
    // On the same base: the round before was void. What was delivered into it
    // is discarded, and so is what was refused.
    action.kind = Action::Kind::kBegin;
    action.carry = carry;
    if (unsent) action.reason = FateOf(local.window, carry);
    return action;
  }
  if (local.window.delivered) {
    action.reason = absl::StrCat("update of round ", view.lease->round,
                                 " is settled; waiting for the others");
    return action;
  }
  action.kind = WindowIsOver(local, *view.lease) ? Action::Kind::kSubmit
                                                 : Action::Kind::kStep;
  return action;
}

void BeginWindow(LocalState& local, const ViewInput::Lease& lease, bool carry) {
  Window& window = local.window;
  if (!carry) window = Window{};
  window.round = lease.round;
  window.base_version = lease.base_version;
  window.steps_done = 0;
}

void FinishCatchUp(LocalState& local, uint64_t version, bool carry) {
  local.version = version;
  local.evaluated.clear();
  if (!carry) local.window = Window{};
}

}  // namespace diloco

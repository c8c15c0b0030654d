#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "coordinator/core/decide.h"
#include "coordinator/core/evolve_round.h"
#include "coordinator/core/round_policy.h"
#include "coordinator/core/soft.h"

namespace diloco {
namespace {

// The last evaluation may hold up the end of the run for so long.
constexpr absl::Duration kFinalEvalPatience = absl::Minutes(10);

bool EvalDue(const Draft& draft) {
  const Policy& policy = draft.policy();
  const State& state = draft.state();
  if (policy.eval_every == 0 || policy.eval_windows == 0 || !state.started ||
      state.finished || state.eval.has_value()) {
    return false;
  }
  const uint64_t version = ThetaVersion(state);
  if (state.evaluated_until.has_value() && *state.evaluated_until >= version) {
    return false;
  }
  // Each round publishes a version of every fragment.
  return version % (policy.eval_every * state.fragments.size()) == 0 ||
         AllRoundsDone(policy, draft.state());
}

// Who holds the newest versions while they are the newest: those with a lease
// on one; when no round is going to open now, whoever is there.
std::vector<std::string> Evaluators(const Draft& draft) {
  std::vector<std::string> names =
      WhoIsEligible(draft.policy(), draft.state(), draft.soft(), draft.now())
          .workers;
  const std::vector<FragmentState>& fragments = draft.state().fragments;
  if (!NoRoundOpen(draft.state())) {
    const auto leased = [&](const std::string& name) {
      return std::any_of(
          fragments.begin(), fragments.end(), [&](const FragmentState& of) {
            return of.open.has_value() && of.open->leases.count(name) != 0;
          });
    };
    std::erase_if(names,
                  [&](const std::string& name) { return !leased(name); });
  } else if (!draft.state().paused &&
             !AllRoundsDone(draft.policy(), draft.state())) {
    names.clear();
  }
  return names;
}

void OpenEval(Draft& draft, const std::vector<std::string>& evaluators) {
  const uint64_t windows = draft.policy().eval_windows;
  const uint64_t count = std::min<uint64_t>(evaluators.size(), windows);
  EvalOpened opened;
  opened.version = ThetaVersion(draft.state());
  opened.versions = ThetaVersions(draft.state());
  uint64_t first = 0;
  for (uint64_t i = 0; i < count; ++i) {
    EvalOpened::Slice& slice = opened.slices.emplace_back();
    slice.worker = evaluators[i];
    slice.first_window = first;
    slice.windows = windows / count + (i < windows % count ? 1 : 0);
    first += slice.windows;
  }
  draft.Add(std::move(opened));
}

// Slices of workers that are gone go to the evaluator with the least to do.
void Reassign(Draft& draft) {
  const std::vector<std::string> evaluators = Evaluators(draft);
  if (evaluators.empty()) return;
  for (uint32_t i = 0; i < draft.state().eval->slices.size(); ++i) {
    const EvalSlice& slice = draft.state().eval->slices[i];
    const Membership membership =
        draft.state().workers.at(slice.worker).membership;
    if (slice.loss_sum.has_value() || membership == Membership::kActive) {
      continue;
    }
    const auto load = [&](const std::string& name) {
      const std::vector<EvalSlice>& slices = draft.state().eval->slices;
      return std::count_if(
          slices.begin(), slices.end(), [&](const EvalSlice& other) {
            return other.worker == name && !other.loss_sum.has_value();
          });
    };
    const auto least =
        std::min_element(evaluators.begin(), evaluators.end(),
                         [&](const std::string& a, const std::string& b) {
                           return load(a) < load(b);
                         });
    draft.Add(EvalReassigned{
        draft.state().eval->version, i, *least,
        absl::StrCat(slice.worker, " is ", MembershipName(membership))});
  }
}

void Abandon(Draft& draft, const std::string& reason) {
  const uint64_t version = draft.state().eval->version;
  draft.Say(absl::StrCat("evaluation of version ", version,
                         " is abandoned: ", reason));
  draft.Add(EvalAbandoned{version, reason});
}

// Nobody was there for the length of a lease.
bool EverybodyGone(const Draft& draft) {
  Instant newest = draft.soft().started_at;
  for (const auto& [name, worker] : draft.state().workers) {
    if (worker.membership == Membership::kActive) return false;
    newest = std::max(newest, LastHeard(draft.soft(), name));
  }
  return draft.now() - newest >= draft.policy().lease;
}

bool SameReport(const EvalSlice& slice, const EvalReportEvent& event) {
  return std::bit_cast<uint64_t>(*slice.loss_sum) ==
             std::bit_cast<uint64_t>(event.loss_sum) &&
         slice.tokens == event.tokens;
}

}  // namespace

absl::Status OnEvent(Draft& draft, const EvalReportEvent& event) {
  const State& state = draft.state();
  const std::vector<EvalSlice>* slices = nullptr;
  if (state.eval.has_value() && state.eval->version == event.version) {
    slices = &state.eval->slices;
  } else if (state.last_eval.has_value() &&
             state.last_eval->version == event.version) {
    slices = &state.last_eval->slices;
  } else {
    return absl::FailedPreconditionError(absl::StrCat(
        "no evaluation of version ", event.version, " is open: watch again"));
  }
  if (event.slice >= slices->size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("slice ", event.slice, " of version ", event.version,
                     ", but there are ", slices->size()));
  }
  const EvalSlice& slice = (*slices)[event.slice];
  if (slice.worker != event.worker) {
    return absl::FailedPreconditionError(absl::StrCat(
        "slice ", event.slice, " of version ", event.version,
        " is given to worker ", slice.worker, ", not to ", event.worker));
  }
  if (slice.loss_sum.has_value()) {
    if (SameReport(slice, event)) return absl::OkStatus();
    return absl::AlreadyExistsError(
        absl::StrCat("worker ", event.worker, " reported ", *slice.loss_sum,
                     " over ", slice.tokens, " tokens for slice ", event.slice,
                     " of version ", event.version, " before, now ",
                     event.loss_sum, " over ", event.tokens));
  }
  // A loss that is no number is reported as such: the run has diverged.
  if (event.tokens == 0 || event.loss_sum < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("evaluation of ", event.tokens, " tokens with loss sum ",
                     event.loss_sum, " cannot be"));
  }
  draft.Add(EvalReported{event.version, event.slice, event.worker,
                         event.loss_sum, event.tokens});
  return absl::OkStatus();
}

void AdvanceEval(Draft& draft) {
  if (draft.state().fragments.empty()) return;
  if (draft.state().eval.has_value()) {
    // Fragments in flight are merged one after the other: each worker holds
    // these versions at some step, at the latest a whole round after they were
    // published.
    const uint64_t newest = ThetaVersion(draft.state());
    if (newest >=
        draft.state().eval->version + draft.state().fragments.size()) {
      Abandon(draft, absl::StrCat("version ", newest, " is published"));
    } else {
      Reassign(draft);
    }
  }
  if (!EvalDue(draft)) return;
  const std::vector<std::string> evaluators = Evaluators(draft);
  if (!evaluators.empty()) OpenEval(draft, evaluators);
}

void FinishRunWhenDone(Draft& draft) {
  const State& state = draft.state();
  const Policy& policy = draft.policy();
  if (state.finished || !AllRoundsDone(policy, state)) return;
  if (state.eval.has_value()) {
    if (EverybodyGone(draft)) {
      Abandon(draft, "no worker is left");
    } else if (draft.now() - draft.soft().eval_opened_at >=
               kFinalEvalPatience) {
      Abandon(draft, absl::StrCat("not complete after ",
                                  absl::FormatDuration(kFinalEvalPatience)));
    } else {
      return;
    }
  } else if (EvalDue(draft) && !EverybodyGone(draft)) {
    return;
  }
  std::string reason =
      state.folded_tokens >= policy.train_tokens
          ? absl::StrCat("train.tokens reached: ", state.folded_tokens, " of ",
                         policy.train_tokens, " folded")
          : absl::StrCat("stopped after round ", *state.stop_after_round,
                         state.stop_reason.empty() ? "" : ": ",
                         state.stop_reason);
  draft.Say(absl::StrCat("run finished: ", reason));
  draft.Add(RunFinished{std::move(reason)});
}

}  // namespace diloco

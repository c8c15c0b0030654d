#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/core/decide.h"

namespace diloco {
namespace {

// With fewer norms to compare with nothing is a jump.
constexpr size_t kFewestNorms = 8;

std::string EvalAlarm(const Policy& policy, const State& state) {
  if (policy.guard_eval_rise <= 0 || !state.last_eval.has_value() ||
      !state.guard.lowest.has_value()) {
    return "";
  }
  const GuardState::Lowest& lowest = *state.guard.lowest;
  const double loss = state.last_eval->loss;
  // A loss that is no number is not below anything.
  if (loss <= lowest.loss + policy.guard_eval_rise) return "";
  return absl::StrFormat(
      "the evaluation of version %d has loss %.4f, the lowest so far is %.4f "
      "at "
      "version %d, and guard.eval_rise is %g",
      state.last_eval->version, loss, lowest.loss, lowest.version,
      policy.guard_eval_rise);
}

std::string NormAlarm(const Policy& policy, const State& state) {
  for (const FragmentState& fragment : state.fragments) {
    std::vector<double> norms = fragment.norms;
    if (policy.guard_norm_jump <= 0 || norms.size() < kFewestNorms ||
        !fragment.open.has_value()) {
      continue;
    }
    std::nth_element(norms.begin(), norms.begin() + norms.size() / 2,
                     norms.end());
    const double median = norms[norms.size() / 2];
    for (const auto& [name, update] : fragment.open->committed) {
      if (update.norm <= policy.guard_norm_jump * median) continue;
      return absl::StrFormat(
          "the update of %s in round %d has norm %.4g, the median of the %d "
          "before is %.4g, and guard.norm_jump is %g",
          name, update.round, update.norm, norms.size(), median,
          policy.guard_norm_jump);
    }
  }
  return "";
}

}  // namespace

void GuardRun(Draft& draft) {
  const State& state = draft.state();
  if (state.paused || state.finished) return;
  std::string why = EvalAlarm(draft.policy(), state);
  if (why.empty()) why = NormAlarm(draft.policy(), state);
  if (why.empty()) return;
  draft.Say(absl::StrCat("paused by the guard: ", why));
  draft.Add(PauseChanged{true, absl::StrCat("guard: ", why), /*guard=*/true});
}

}  // namespace diloco

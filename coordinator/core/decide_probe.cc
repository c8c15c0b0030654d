// The probe of a worker that starts cold: what it is asked, what it is worth.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "coordinator/core/decide.h"
#include "coordinator/core/round_policy.h"

namespace diloco {
namespace {

constexpr double kTolerance = 0.01;

// The slices of `version` of which the loss is known, or nullptr.
const std::vector<EvalSlice>* SlicesOf(const State& state, uint64_t version) {
  if (state.eval.has_value() && state.eval->version == version) {
    return &state.eval->slices;
  }
  if (state.last_eval.has_value() && state.last_eval->version == version) {
    return &state.last_eval->slices;
  }
  return nullptr;
}

}  // namespace

std::optional<EvalView> ProbeSlice(const State& state) {
  if (state.fragments.empty()) return std::nullopt;
  const uint64_t version = ThetaVersion(state);
  const std::vector<EvalSlice>* slices = SlicesOf(state, version);
  if (slices == nullptr) return std::nullopt;
  for (uint32_t i = 0; i < slices->size(); ++i) {
    const EvalSlice& slice = (*slices)[i];
    if (!slice.loss_sum.has_value() || !std::isfinite(*slice.loss_sum)) {
      continue;
    }
    return EvalView{version, i, slice.first_window, slice.windows,
                    ThetaVersions(state)};
  }
  return std::nullopt;
}

ProbeVerdict JudgeProbe(const State& state, const ProbeEvent& probe) {
  using Kind = ProbeVerdict::Kind;
  const std::string begin = absl::StrCat("the probe of ", probe.worker,
                                         " on version ", probe.version);
  const EvalSlice* known = nullptr;
  if (const auto* slices = SlicesOf(state, probe.version)) {
    for (const EvalSlice& slice : *slices) {
      if (slice.loss_sum.has_value() && std::isfinite(*slice.loss_sum) &&
          slice.first_window == probe.first_window &&
          slice.windows == probe.windows) {
        known = &slice;
      }
    }
  }
  if (known == nullptr || probe.tokens == 0) {
    return {Kind::kNotCompared,
            absl::StrCat(begin,
                         " passes: no evaluation of that version to "
                         "compare it with")};
  }
  const double found = probe.loss_sum / static_cast<double>(probe.tokens);
  const double expected = *known->loss_sum / static_cast<double>(known->tokens);
  const std::string figures = absl::StrFormat(
      "%s gives a loss of %.6g, the run has %.6g (windows %d to %d)", begin,
      found, expected, probe.first_window,
      probe.first_window + probe.windows - 1);
  // A loss that is no number is not within anything.
  if (std::abs(found - expected) <= kTolerance * std::abs(expected)) {
    return {Kind::kAgrees, figures};
  }
  return {Kind::kDiffers,
          absl::StrCat(figures,
                       ": more than 1 % apart; its build or its device "
                       "computes another model, so it takes no part. Check "
                       "device and build, or set join.probe to false")};
}

absl::Status OnEvent(Draft& draft, const ProbeEvent& event) {
  RETURN_IF_ERROR(OnEvent(draft, BeatEvent{event.worker}));
  ProbeVerdict verdict = JudgeProbe(draft.state(), event);
  draft.Say(verdict.reason);
  if (verdict.kind == ProbeVerdict::Kind::kDiffers) {
    draft.Add(WorkerDeparted{event.worker, Departure::kRefused,
                             std::move(verdict.reason)});
  }
  return absl::OkStatus();
}

}  // namespace diloco

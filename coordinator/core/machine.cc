#include "coordinator/core/machine.h"

#include "coordinator/core/decide.h"
#include "coordinator/core/draft.h"

namespace diloco {

Decision Decide(const Policy& policy, const State& state, const Soft& soft,
                const Event& event, Instant now) {
  Draft draft(policy, state, soft, now);
  const absl::Status status = std::visit(
      [&draft](const auto& what) { return OnEvent(draft, what); }, event);
  if (!status.ok()) {
    Decision refusal;
    refusal.status = status;
    refusal.reason = std::string(status.message());
    return refusal;
  }
  draft.Hear(event);
  for (const auto advance :
       {LoseSilentWorkers, GuardRun, CloseDueRounds, OpenDueRounds,
        LeaseLateWorkers, AdvanceEval, FinishRunWhenDone}) {
    if (draft.policy_is_old()) break;
    advance(draft);
  }
  return draft.Take();
}

std::optional<FoldOrder> PendingFold(const State& state, uint32_t fragment) {
  if (fragment >= state.fragments.size() ||
      !state.fragments[fragment].folding.has_value()) {
    return std::nullopt;
  }
  FoldOrder order;
  order.closed = *state.fragments[fragment].folding;
  order.base_version = state.fragments[fragment].version;
  return order;
}

}  // namespace diloco

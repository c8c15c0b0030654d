// The parts of Decide: one overload per event, then what has become due. Each
// works on the draft of the decision. Only machine.cc uses it.
#ifndef COORDINATOR_CORE_DECIDE_H_
#define COORDINATOR_CORE_DECIDE_H_

#include "absl/status/status.h"
#include "coordinator/core/draft.h"

namespace diloco {

// decide_membership.cc
absl::Status OnEvent(Draft& draft, const JoinEvent& event);
absl::Status OnEvent(Draft& draft, const BeatEvent& event);
absl::Status OnEvent(Draft& draft, const LeaveEvent& event);
void LoseSilentWorkers(Draft& draft);
// A lost worker was heard of: it is active again.
void TakeBack(Draft& draft, const std::string& worker);

// decide_probe.cc
absl::Status OnEvent(Draft& draft, const ProbeEvent& event);

// decide_upload.cc
absl::Status OnEvent(Draft& draft, const UpdateVerifiedEvent& event);
absl::Status OnEvent(Draft& draft, const UpdateUnusableEvent& event);
void SayRefused(Draft& draft, const UpdateRefused& refused);

// decide_round.cc
absl::Status OnEvent(Draft& draft, const FoldDoneEvent& event);
void CloseDueRounds(Draft& draft);
void OpenDueRounds(Draft& draft);
// Leases in mid-round, for workers that the round was opened without.
void LeaseLateWorkers(Draft& draft);

// decide_eval.cc
absl::Status OnEvent(Draft& draft, const EvalReportEvent& event);
void AdvanceEval(Draft& draft);
void FinishRunWhenDone(Draft& draft);

// decide_guard.cc
void GuardRun(Draft& draft);

// decide_admin.cc
absl::Status OnEvent(Draft& draft, const PauseEvent& event);
absl::Status OnEvent(Draft& draft, const StopEvent& event);
absl::Status OnEvent(Draft& draft, const DrainEvent& event);
absl::Status OnEvent(Draft& draft, const EvictEvent& event);
absl::Status OnEvent(Draft& draft, const SettingsEvent& event);

inline absl::Status OnEvent(Draft&, const TickEvent&) {
  return absl::OkStatus();
}

}  // namespace diloco

#endif  // COORDINATOR_CORE_DECIDE_H_

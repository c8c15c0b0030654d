#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/core/decide.h"
#include "coordinator/core/screen.h"

namespace diloco {

void SayRefused(Draft& draft, const UpdateRefused& refused) {
  draft.Say(absl::StrCat("update of worker ", refused.worker, " for round ",
                         refused.round, " is refused: ", refused.reason));
}

absl::Status OnEvent(Draft& draft, const UpdateVerifiedEvent& event) {
  // The verified file has the size its value says: that was judged at Begin.
  ASSIGN_OR_RETURN(
      const UploadVerdict verdict,
      JudgeUpload(draft.policy(), draft.state(), event.worker, event.fragment,
                  event.round, event.value, event.value.bytes));
  switch (verdict.kind) {
    case UploadVerdict::Kind::kAccepted:
      return absl::OkStatus();
    case UploadVerdict::Kind::kLate:
      return absl::FailedPreconditionError(verdict.reason);
    case UploadVerdict::Kind::kRefused:
      return absl::InvalidArgumentError(verdict.reason);
    case UploadVerdict::Kind::kSend:
      break;
  }
  TakeBack(draft, event.worker);
  std::optional<UpdateRefused> replay = ScreenReplay(
      draft.policy(), draft.state().fragments[event.fragment], event);
  if (replay.has_value()) {
    SayRefused(draft, *replay);
    draft.Add(*std::move(replay));
    return absl::OkStatus();
  }
  UpdateCommitted committed;
  committed.fragment = event.fragment;
  committed.round = event.round;
  committed.worker = event.worker;
  committed.value = event.value;
  committed.max_abs = event.max_abs;
  committed.norm = event.norm;
  draft.Add(std::move(committed));
  return absl::OkStatus();
}

absl::Status OnEvent(Draft& draft, const UpdateUnusableEvent& event) {
  const State& state = draft.state();
  if (event.fragment >= state.fragments.size() ||
      state.workers.count(event.worker) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("refused update of unknown worker ", event.worker,
                     " or fragment ", event.fragment));
  }
  const std::optional<OpenRound>& open = state.fragments[event.fragment].open;
  if (!open.has_value() || open->round != event.round ||
      open->leases.count(event.worker) == 0) {
    // Closed meanwhile: nothing waits for this update any more.
    return absl::OkStatus();
  }
  if (open->refused.count(event.worker) != 0) return absl::OkStatus();
  if (open->committed.count(event.worker) != 0) {
    return absl::AlreadyExistsError(absl::StrCat(
        "worker ", event.worker, " already delivered its update for round ",
        event.round, "; it stays valid"));
  }
  UpdateRefused refused{event.fragment, event.round, event.worker, event.digest,
                        event.reason};
  SayRefused(draft, refused);
  draft.Add(std::move(refused));
  return absl::OkStatus();
}

}  // namespace diloco

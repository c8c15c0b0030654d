#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "coordinator/core/decide.h"
#include "coordinator/core/round_policy.h"
#include "coordinator/core/soft.h"

namespace diloco {
namespace {

absl::Status Evicted(const std::string& worker) {
  return absl::PermissionDeniedError(
      absl::StrCat("worker ", worker,
                   " is evicted from this run and may not join again under "
                   "this name"));
}

const WorkerState* FindWorker(const Draft& draft, const std::string& name) {
  const auto found = draft.state().workers.find(name);
  return found == draft.state().workers.end() ? nullptr : &found->second;
}

bool LeaseAlive(const Draft& draft, const std::string& name) {
  const WorkerState* worker = FindWorker(draft, name);
  return worker != nullptr && worker->membership == Membership::kActive &&
         draft.now() - LastHeard(draft.soft(), name) < draft.policy().lease;
}

// Whether the token in the worker's scratch directory gives it the name.
bool HoldsToken(const Draft& draft, const WorkerState& worker,
                const JoinEvent& event) {
  if (event.previous_session.empty()) return false;
  if (event.previous_session == worker.session) return true;
  // One step back is a Join whose reply was lost, unless a process already
  // called under the newer token: then somebody else got that reply.
  const auto soft = draft.soft().workers.find(event.worker);
  const bool used =
      soft != draft.soft().workers.end() && soft->second.session_used;
  return event.previous_session == worker.previous_session && !used;
}

// A token that belongs to another name: a copied directory with a new name.
absl::Status CheckForeignToken(const Draft& draft, const JoinEvent& event) {
  if (event.previous_session.empty()) return absl::OkStatus();
  for (const auto& [name, worker] : draft.state().workers) {
    if (name != event.worker &&
        (event.previous_session == worker.session ||
         event.previous_session == worker.previous_session ||
         event.previous_session == worker.replaced_session)) {
      return absl::PermissionDeniedError(
          absl::StrCat("the scratch directory belongs to worker ", name, " (",
                       worker.peer, "), not to ", event.worker,
                       ": give this worker an empty scratch directory"));
    }
  }
  return absl::OkStatus();
}

// A copy of a Join that was answered long ago, when its worker had no token
// yet.
absl::Status CheckNotLate(const WorkerState& worker, const JoinEvent& event) {
  const std::vector<std::string>& blank = worker.blank_attempts;
  if (event.attempt.empty() ||
      std::find(blank.begin(), blank.end(), event.attempt) == blank.end()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("this join of worker ", event.worker,
                   " was answered before and the worker has joined again "
                   "since: join again"));
}

absl::Status CheckKnownName(const Draft& draft, const WorkerState& worker,
                            const JoinEvent& event) {
  if (HoldsToken(draft, worker, event)) return absl::OkStatus();
  if (!event.previous_session.empty() && !event.fresh) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the scratch directory of worker ", event.worker,
        " is a copy or out of date: its session is not the newest, which is "
        "held by ",
        worker.peer,
        "; use the newest scratch directory, or an empty one to start this "
        "worker afresh"));
  }
  if (LeaseAlive(draft, event.worker) && !event.take_over) {
    const absl::Duration left =
        draft.policy().lease -
        (draft.now() - LastHeard(draft.soft(), event.worker));
    return absl::AlreadyExistsError(absl::StrCat(
        "worker name ", event.worker, " is held by ", worker.peer, "; free in ",
        absl::ToInt64Seconds(absl::Ceil(left, absl::Seconds(1))),
        " s unless it is heard of again, or end it with --take-over"));
  }
  return absl::OkStatus();
}

absl::Status CheckRoom(const Draft& draft, const std::string& joiner) {
  const WorkerState* worker = FindWorker(draft, joiner);
  if (worker != nullptr && worker->membership == Membership::kActive) {
    return absl::OkStatus();
  }
  uint64_t active = 0;
  for (const auto& [name, other] : draft.state().workers) {
    if (other.membership == Membership::kActive) ++active;
  }
  if (active < draft.policy().max_workers) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the run has ", active,
                   " active workers, the most that join.max_workers allows: "
                   "raise it, or take one out (dilococtl drain or evict)"));
}

}  // namespace

absl::Status OnEvent(Draft& draft, const JoinEvent& event) {
  RETURN_IF_ERROR(ValidateName("worker", event.worker));
  if (event.new_session.empty()) {
    return absl::InternalError("a join without a session token to give");
  }
  RETURN_IF_ERROR(CheckForeignToken(draft, event));
  const WorkerState* worker = FindWorker(draft, event.worker);
  if (worker != nullptr) {
    if (worker->membership == Membership::kEvicted) {
      return Evicted(event.worker);
    }
    if (!event.attempt.empty() && event.attempt == worker->attempt) {
      if (worker->membership == Membership::kLeft) {
        // It came late: a session that nobody gets must not take the name.
        return absl::FailedPreconditionError(absl::StrCat(
            "this join of worker ", event.worker,
            " was answered before and the worker has left since: join again"));
      }
      TakeBack(draft, event.worker);
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(CheckNotLate(*worker, event));
    RETURN_IF_ERROR(CheckKnownName(draft, *worker, event));
  }
  RETURN_IF_ERROR(CheckRoom(draft, event.worker));

  WorkerJoined joined;
  joined.worker = event.worker;
  joined.session = event.new_session;
  joined.attempt = event.attempt;
  joined.fresh = event.fresh;
  joined.peer = event.peer;
  if (worker != nullptr && HoldsToken(draft, *worker, event)) {
    joined.previous_session = event.previous_session;
  }
  draft.Say(absl::StrCat("worker ", event.worker, " joined from ", event.peer,
                         worker == nullptr ? ""
                         : joined.previous_session.empty()
                             ? ", in place of the one before"
                             : " again"));
  draft.Add(std::move(joined));
  return absl::OkStatus();
}

absl::Status OnEvent(Draft& draft, const BeatEvent& event) {
  const WorkerState* worker = FindWorker(draft, event.worker);
  if (worker == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("worker ", event.worker, " never joined"));
  }
  if (worker->membership == Membership::kEvicted) return Evicted(event.worker);
  if (!worker->refusal.empty()) {
    return absl::FailedPreconditionError(worker->refusal);
  }
  if (worker->membership == Membership::kLeft) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", event.worker, " has left: join again"));
  }
  TakeBack(draft, event.worker);
  return absl::OkStatus();
}

absl::Status OnEvent(Draft& draft, const LeaveEvent& event) {
  const WorkerState* worker = FindWorker(draft, event.worker);
  if (worker == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("worker ", event.worker, " never joined"));
  }
  if (worker->membership == Membership::kEvicted ||
      worker->membership == Membership::kLeft) {
    return absl::OkStatus();  // A repeat, or no matter any more.
  }
  draft.Say(absl::StrCat("worker ", event.worker, " left: ", event.reason));
  draft.Add(WorkerDeparted{event.worker, Departure::kLeft, event.reason});
  return absl::OkStatus();
}

void LoseSilentWorkers(Draft& draft) {
  std::vector<std::string> silent;
  for (const auto& [name, worker] : draft.state().workers) {
    if (worker.membership == Membership::kActive && !LeaseAlive(draft, name)) {
      silent.push_back(name);
    }
  }
  for (const std::string& name : silent) {
    const std::string reason = absl::StrCat(
        "not heard of for ",
        absl::ToInt64Seconds(draft.now() - LastHeard(draft.soft(), name)),
        " s");
    draft.Say(absl::StrCat("worker ", name, " is lost: ", reason));
    draft.Add(WorkerDeparted{name, Departure::kLost, reason});
  }
}

void TakeBack(Draft& draft, const std::string& worker) {
  if (draft.state().workers.at(worker).membership != Membership::kLost) return;
  draft.Say(absl::StrCat("worker ", worker, " is back"));
  draft.Add(WorkerReturned{worker});
}

absl::StatusOr<std::string> WorkerOfSession(const State& state,
                                            const std::string& session) {
  if (session.empty()) {
    return absl::UnauthenticatedError("no session token: join first");
  }
  for (const auto& [name, worker] : state.workers) {
    if (session == worker.session) {
      if (worker.membership == Membership::kEvicted) return Evicted(name);
      return name;
    }
    if (session == worker.replaced_session ||
        session == worker.previous_session) {
      return absl::PermissionDeniedError(absl::StrCat(
          "this session of worker ", name,
          " was ended by a newer process under that name, at ", worker.peer,
          ": two processes must not share a name or a scratch directory"));
    }
  }
  return absl::UnauthenticatedError(
      "unknown session token: join again (the coordinator may have lost it, or "
      "it is older than the worker's last two)");
}

}  // namespace diloco

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/core/decide.h"

namespace diloco {
namespace {

absl::Status CheckNotFinished(const Draft& draft) {
  if (!draft.state().finished) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the run has finished: ", draft.state().finish_reason));
}

absl::Status NoSuchWorker(const Draft& draft, const std::string& name) {
  std::string known;
  for (const auto& [worker, unused] : draft.state().workers) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", worker);
  }
  return absl::NotFoundError(
      absl::StrCat("there is no worker ", name,
                   "; known: ", known.empty() ? "none" : known));
}

}  // namespace

absl::Status OnEvent(Draft& draft, const PauseEvent& event) {
  if (absl::Status status = CheckNotFinished(draft); !status.ok()) {
    return status;
  }
  if (draft.state().paused == event.paused) return absl::OkStatus();
  draft.Say(event.paused
                ? absl::StrCat("paused", event.reason.empty() ? "" : ": ",
                               event.reason)
                : std::string("resumed"));
  draft.Add(PauseChanged{event.paused, event.reason, /*guard=*/false});
  return absl::OkStatus();
}

absl::Status OnEvent(Draft& draft, const StopEvent& event) {
  uint64_t newest = 0;
  for (const FragmentState& fragment : draft.state().fragments) {
    newest = std::max(newest, fragment.last_round);
  }
  const uint64_t after = event.after_round.value_or(newest);
  if (draft.state().stop_after_round == after) return absl::OkStatus();
  if (absl::Status status = CheckNotFinished(draft); !status.ok()) {
    return status;
  }
  if (after < newest) {
    return absl::InvalidArgumentError(absl::StrCat("cannot stop after round ",
                                                   after, ": round ", newest,
                                                   " has opened already"));
  }
  draft.Say(absl::StrCat("stop after round ", after,
                         event.reason.empty() ? "" : ": ", event.reason));
  draft.Add(StopRequested{after, event.reason});
  return absl::OkStatus();
}

absl::Status OnEvent(Draft& draft, const DrainEvent& event) {
  const auto found = draft.state().workers.find(event.worker);
  if (found == draft.state().workers.end()) {
    return NoSuchWorker(draft, event.worker);
  }
  const WorkerState& worker = found->second;
  if (worker.membership == Membership::kLeft ||
      worker.membership == Membership::kEvicted) {
    return absl::FailedPreconditionError(absl::StrCat(
        "worker ", event.worker, " is not in the run: it ",
        worker.membership == Membership::kLeft ? "has left" : "is evicted"));
  }
  if (worker.draining) return absl::OkStatus();
  draft.Say(absl::StrCat("worker ", event.worker, " drains"));
  draft.Add(DrainRequested{event.worker});
  return absl::OkStatus();
}

absl::Status OnEvent(Draft& draft, const EvictEvent& event) {
  const auto found = draft.state().workers.find(event.worker);
  if (found == draft.state().workers.end()) {
    return NoSuchWorker(draft, event.worker);
  }
  if (found->second.membership == Membership::kEvicted) {
    return absl::OkStatus();
  }
  draft.Say(
      absl::StrCat("worker ", event.worker, " is evicted: ", event.reason));
  draft.Add(WorkerDeparted{event.worker, Departure::kEvicted, event.reason});
  return absl::OkStatus();
}

SettingsChanged ToFact(const SettingsEvent& event, const State& state) {
  SettingsChanged changed;
  changed.revision = event.base_revision + 1;
  changed.changes = event.changes;
  changed.reopens = state.finished;
  for (const FragmentState& fragment : state.fragments) {
    changed.from_round = std::max(changed.from_round, fragment.last_round + 1);
  }
  changed.settings_digest = event.settings_digest;
  changed.by = event.by;
  changed.reason = event.reason;
  return changed;
}

absl::Status OnEvent(Draft& draft, const SettingsEvent& event) {
  const State& state = draft.state();
  if (event.base_revision != state.settings.revision) {
    return absl::AbortedError(
        "the settings were changed by somebody else at the same time: look at "
        "them and try again");
  }
  std::vector<std::string> words;
  bool tokens = false;
  for (const SettingsChanged::Change& change : event.changes) {
    words.push_back(
        absl::StrCat(change.key, " ", change.before, " -> ", change.after));
    tokens |= change.key == "train.tokens";
  }
  if (tokens && event.train_tokens <= state.folded_tokens) {
    return absl::FailedPreconditionError(
        absl::StrCat("train.tokens ", event.train_tokens,
                     " is not more than the ", state.folded_tokens,
                     " that are folded already: dilococtl stop ends the run"));
  }
  if (state.finished && !tokens) {
    return absl::FailedPreconditionError(
        absl::StrCat("the run has finished: ", state.finish_reason,
                     "; a larger train.tokens makes it go on"));
  }
  SettingsChanged changed = ToFact(event, state);
  draft.Say(absl::StrCat("settings changed by ", event.by, ": ",
                         absl::StrJoin(words, ", "), ", from round ",
                         changed.from_round, event.reason.empty() ? "" : ": ",
                         event.reason));
  draft.Add(std::move(changed));
  return absl::OkStatus();
}

}  // namespace diloco

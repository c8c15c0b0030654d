#include "coordinator/core/state.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/core/evolve_round.h"

namespace diloco {
namespace {

absl::StatusOr<WorkerState*> FindWorker(State& state, const std::string& name) {
  const auto found = state.workers.find(name);
  if (found == state.workers.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", name, " never joined"));
  }
  return &found->second;
}

struct Apply {
  State& state;

  absl::Status operator()(const RunCreated& fact) {
    if (!state.fragments.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("run ", state.run, " was created before"));
    }
    if (fact.run.empty() || fact.fragments.empty()) {
      return absl::InvalidArgumentError(
          "a run has a name and at least one fragment");
    }
    state.run = fact.run;
    state.lineage = fact.lineage;
    state.settings_digest = fact.settings_digest;
    state.layout_digest = fact.layout_digest;
    state.fragments.resize(fact.fragments.size());
    for (size_t i = 0; i < fact.fragments.size(); ++i) {
      state.fragments[i].digest = fact.fragments[i].digest;
    }
    return absl::OkStatus();
  }

  absl::Status operator()(const EpochStarted& fact) {
    if (fact.epoch <= state.epoch) {
      return absl::InvalidArgumentError(
          absl::StrCat("epoch ", fact.epoch, " after epoch ", state.epoch));
    }
    state.epoch = fact.epoch;
    state.boot_nonce = fact.boot_nonce;
    return absl::OkStatus();
  }

  absl::Status operator()(const WorkerJoined& fact) {
    if (fact.worker.empty() || fact.session.empty()) {
      return absl::InvalidArgumentError("a join needs a name and a session");
    }
    const bool is_new = state.workers.count(fact.worker) == 0;
    if (is_new) ForgetLongestAway();
    WorkerState& worker = state.workers[fact.worker];
    if (worker.membership == Membership::kEvicted) {
      return absl::InvalidArgumentError(
          absl::StrCat("worker ", fact.worker, " is evicted"));
    }
    worker.membership = Membership::kActive;
    worker.replaced_session = worker.session;
    worker.previous_session = fact.previous_session;
    worker.session = fact.session;
    worker.attempt = fact.attempt;
    if (fact.previous_session.empty() && !fact.attempt.empty()) {
      std::vector<std::string>& blank = worker.blank_attempts;
      blank.push_back(fact.attempt);
      if (blank.size() > kBlankAttempts) blank.erase(blank.begin());
    }
    worker.peer = fact.peer;
    worker.refusal.clear();
    if (fact.fresh) ForgetCarried(fact.worker);
    return absl::OkStatus();
  }

  absl::Status operator()(const WorkerReturned& fact) {
    ASSIGN_OR_RETURN(WorkerState * worker, FindWorker(state, fact.worker));
    if (worker->membership != Membership::kLost) {
      return absl::InvalidArgumentError(
          absl::StrCat("worker ", fact.worker, " returned but was not lost"));
    }
    worker->membership = Membership::kActive;
    return absl::OkStatus();
  }

  absl::Status operator()(const WorkerDeparted& fact) {
    ASSIGN_OR_RETURN(WorkerState * worker, FindWorker(state, fact.worker));
    if (worker->membership == Membership::kEvicted) {
      return absl::InvalidArgumentError(
          absl::StrCat("worker ", fact.worker, " is evicted already"));
    }
    switch (fact.departure) {
      case Departure::kLeft:
        worker->membership = Membership::kLeft;
        worker->draining = false;
        worker->departed_at = state.revision;
        return absl::OkStatus();
      case Departure::kRefused:
        worker->membership = Membership::kLeft;
        worker->departed_at = state.revision;
        worker->refusal = fact.reason;
        return absl::OkStatus();
      case Departure::kLost:
        worker->membership = Membership::kLost;
        worker->departed_at = state.revision;
        return absl::OkStatus();
      case Departure::kEvicted:
        worker->membership = Membership::kEvicted;
        return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("unknown departure ", static_cast<int>(fact.departure)));
  }

  absl::Status operator()(const DrainRequested& fact) {
    ASSIGN_OR_RETURN(WorkerState * worker, FindWorker(state, fact.worker));
    worker->draining = true;
    return absl::OkStatus();
  }

  absl::Status operator()(const RoundOpened& fact) {
    return EvolveRound(state, fact);
  }
  absl::Status operator()(const RoundExtended& fact) {
    return EvolveRound(state, fact);
  }
  absl::Status operator()(const LeaseAdded& fact) {
    return EvolveRound(state, fact);
  }
  absl::Status operator()(const UpdateCommitted& fact) {
    return EvolveRound(state, fact);
  }
  absl::Status operator()(const UpdateRefused& fact) {
    return EvolveRound(state, fact);
  }
  absl::Status operator()(const RoundClosed& fact) {
    return EvolveRound(state, fact);
  }
  absl::Status operator()(const VersionPublished& fact) {
    return EvolveRound(state, fact);
  }

  absl::Status operator()(const EvalOpened& fact) {
    if (state.eval.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("evaluation of version ", state.eval->version,
                       " is open when that of ", fact.version, " opens"));
    }
    if (fact.slices.empty()) {
      return absl::InvalidArgumentError("an evaluation has slices");
    }
    EvalState& eval = state.eval.emplace();
    eval.version = fact.version;
    for (const EvalOpened::Slice& slice : fact.slices) {
      EvalSlice& added = eval.slices.emplace_back();
      added.worker = slice.worker;
      added.first_window = slice.first_window;
      added.windows = slice.windows;
    }
    eval.versions = fact.versions;
    state.evaluated_until = fact.version;
    return absl::OkStatus();
  }

  absl::Status operator()(const EvalReassigned& fact) {
    ASSIGN_OR_RETURN(EvalSlice * slice, FindSlice(fact.version, fact.slice));
    slice->worker = fact.worker;
    return absl::OkStatus();
  }

  absl::Status operator()(const EvalReported& fact) {
    ASSIGN_OR_RETURN(EvalSlice * slice, FindSlice(fact.version, fact.slice));
    if (fact.tokens == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("slice ", fact.slice, " was evaluated on no tokens"));
    }
    slice->worker = fact.worker;
    slice->loss_sum = fact.loss_sum;
    slice->tokens = fact.tokens;
    EvalResult result;
    double loss_sum = 0;
    for (const EvalSlice& part : state.eval->slices) {
      if (!part.loss_sum.has_value()) return absl::OkStatus();
      loss_sum += *part.loss_sum;
      result.tokens += part.tokens;
    }
    result.version = state.eval->version;
    result.loss = loss_sum / static_cast<double>(result.tokens);
    result.slices = state.eval->slices;
    if (std::isfinite(result.loss) &&
        (!state.guard.lowest.has_value() ||
         result.loss < state.guard.lowest->loss)) {
      state.guard.lowest = {result.loss, result.version};
    }
    state.last_eval = std::move(result);
    state.eval.reset();
    return absl::OkStatus();
  }

  absl::Status operator()(const EvalAbandoned& fact) {
    if (!state.eval.has_value() || state.eval->version != fact.version) {
      return absl::InvalidArgumentError(
          absl::StrCat("evaluation of version ", fact.version, " is not open"));
    }
    state.eval.reset();
    return absl::OkStatus();
  }

  absl::Status operator()(const PauseChanged& fact) {
    state.paused = fact.paused;
    state.pause_reason = fact.paused ? fact.reason : "";
    if (!fact.paused && state.guard.alarmed) {
      state.guard = GuardState{};
      for (FragmentState& fragment : state.fragments) fragment.norms.clear();
    }
    state.guard.alarmed = fact.paused && fact.guard;
    return absl::OkStatus();
  }

  absl::Status operator()(const StopRequested& fact) {
    state.stop_after_round = fact.after_round;
    state.stop_reason = fact.reason;
    return absl::OkStatus();
  }

  absl::Status operator()(const SettingsChanged& fact) {
    SettingsState& settings = state.settings;
    if (fact.revision != settings.revision + 1 || fact.changes.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "settings revision ", fact.revision, " with ", fact.changes.size(),
          " changes after revision ", settings.revision));
    }
    if (fact.reopens && !state.finished) {
      return absl::InvalidArgumentError(
          "a run that has not finished cannot be reopened");
    }
    for (const SettingsChanged::Change& change : fact.changes) {
      const auto known = settings.accepted.find(change.key);
      if (known != settings.accepted.end() && known->second != change.before) {
        return absl::InvalidArgumentError(
            absl::StrCat(change.key, " is changed from ", change.before,
                         ", but it is ", known->second));
      }
    }
    const bool boundary = NoRoundOpen(state);
    bool applied = false;
    for (const SettingsChanged::Change& change : fact.changes) {
      settings.accepted[change.key] = change.after;
      if (!boundary && !change.at_once) continue;
      settings.in_force[change.key] = change.after;
      applied = true;
    }
    if (applied) ++settings.applied;
    for (const FragmentState& fragment : state.fragments) {
      for (const auto& [name, window] : fragment.windows) {
        settings.progress_floor =
            std::max(settings.progress_floor, window.progress_reached);
      }
    }
    settings.revision = fact.revision;
    settings.former.push_back(state.settings_digest);
    state.settings_digest = fact.settings_digest;
    if (fact.reopens) {
      state.finished = false;
      state.finish_reason.clear();
      state.stop_after_round.reset();
      state.stop_reason.clear();
    }
    return absl::OkStatus();
  }

  absl::Status operator()(const RunFinished& fact) {
    if (state.finished) {
      return absl::InvalidArgumentError("the run finished before");
    }
    state.finished = true;
    state.finish_reason = fact.reason;
    return absl::OkStatus();
  }

  absl::Status operator()(const LineageStarted& fact) {
    if (fact.fragments.size() != state.fragments.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("a lineage of ", fact.fragments.size(),
                       " fragments in a run of ", state.fragments.size()));
    }
    for (size_t f = 0; f < fact.fragments.size(); ++f) {
      if (fact.fragments[f].version > state.fragments[f].version) {
        return absl::InvalidArgumentError(
            absl::StrCat("a lineage that begins at version ",
                         fact.fragments[f].version, " of fragment ", f,
                         ", the newest is ", state.fragments[f].version));
      }
    }
    state.past_lineages.push_back(state.lineage);
    state.lineage = fact.lineage;
    // A salvaged image may stand in for what was published.
    bool other = false;
    for (size_t f = 0; f < fact.fragments.size(); ++f) {
      FragmentState& fragment = state.fragments[f];
      const uint64_t last_round = fragment.last_round;  // Keys stay unique.
      other |= fragment.version == fact.fragments[f].version &&
               fragment.digest != fact.fragments[f].digest;
      fragment = FragmentState{};
      fragment.last_round = last_round;
      fragment.first_round = last_round + 1;
      fragment.folded_tokens = fact.fragments.size() == 1
                                   ? fact.folded_tokens
                                   : fact.fragments[f].folded_tokens;
      fragment.version = fact.fragments[f].version;
      fragment.digest = fact.fragments[f].digest;
    }
    state.folded_tokens = MeanFoldedTokens(state);
    state.started = false;  // All have left: join.wait_for counts again.
    state.finished = false;
    state.finish_reason.clear();
    state.stop_after_round.reset();
    state.stop_reason.clear();
    const uint64_t version = ThetaVersion(state);
    state.eval.reset();
    if (state.last_eval.has_value() &&
        (other || state.last_eval->version > version)) {
      state.last_eval.reset();
    }
    if (state.evaluated_until.has_value()) {
      state.evaluated_until = std::min(*state.evaluated_until, version);
    }
    // A result that is not known any more is worth having again.
    if (state.evaluated_until == version &&
        !(state.last_eval.has_value() && state.last_eval->version == version)) {
      state.evaluated_until.reset();
      if (version > 0) state.evaluated_until = version - 1;
    }
    for (auto& [name, worker] : state.workers) StartAfresh(worker);
    state.settings.progress_floor = 0;
    state.guard.lowest.reset();
    ApplyWaitingSettings(state);
    return absl::OkStatus();
  }

  // Its tokens and values are of the lineage before.
  void StartAfresh(WorkerState& worker) {
    if (worker.membership == Membership::kEvicted) return;
    worker.membership = Membership::kLeft;
    worker.departed_at = state.revision;
    worker.session.clear();
    worker.previous_session.clear();
    worker.replaced_session.clear();
    worker.attempt.clear();
    worker.refusal.clear();
    worker.draining = false;
  }

  bool IsNeeded(const std::string& name) const {
    for (const FragmentState& fragment : state.fragments) {
      if (fragment.open.has_value() && fragment.open->leases.count(name) != 0) {
        return true;
      }
      if (!fragment.folding.has_value()) continue;
      for (const RoundMember& member : fragment.folding->members) {
        if (member.worker == name) return true;
      }
    }
    if (!state.eval.has_value()) return false;
    for (const EvalSlice& slice : state.eval->slices) {
      if (slice.worker == name) return true;
    }
    return false;
  }

  void ForgetLongestAway() {
    size_t away = 0;
    auto longest = state.workers.end();
    for (auto it = state.workers.begin(); it != state.workers.end(); ++it) {
      if (it->second.membership != Membership::kLeft &&
          it->second.membership != Membership::kLost) {
        continue;
      }
      ++away;
      if (!IsNeeded(it->first) &&
          (longest == state.workers.end() ||
           it->second.departed_at < longest->second.departed_at)) {
        longest = it;
      }
    }
    if (away <= kRememberedDepartures || longest == state.workers.end()) return;
    for (FragmentState& fragment : state.fragments) {
      fragment.last_committed.erase(longest->first);
      fragment.last_refused.erase(longest->first);
      fragment.windows.erase(longest->first);
      fragment.norm_history.erase(longest->first);
    }
    state.workers.erase(longest);
  }

  // The carried tokens were trained into values that are gone, unless they
  // came with an update already.
  void ForgetCarried(const std::string& name) {
    for (FragmentState& fragment : state.fragments) {
      const auto window = fragment.windows.find(name);
      if (window != fragment.windows.end()) window->second.carried_tokens = 0;
      if (!fragment.open.has_value() ||
          fragment.open->committed.count(name) != 0) {
        continue;
      }
      const auto lease = fragment.open->leases.find(name);
      if (lease == fragment.open->leases.end()) continue;
      lease->second.tokens -= lease->second.carried_tokens;
      lease->second.carried_tokens = 0;
    }
  }

  absl::StatusOr<EvalSlice*> FindSlice(uint64_t version, uint32_t slice) {
    if (!state.eval.has_value() || state.eval->version != version ||
        slice >= state.eval->slices.size() ||
        state.eval->slices[slice].loss_sum.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("slice ", slice, " of the evaluation of version ",
                       version, " is not open"));
    }
    return &state.eval->slices[slice];
  }
};

}  // namespace

const char* MembershipName(Membership membership) {
  switch (membership) {
    case Membership::kActive:
      return "active";
    case Membership::kLost:
      return "lost";
    case Membership::kLeft:
      return "left";
    case Membership::kEvicted:
      return "evicted";
  }
  return "unknown";
}

uint64_t ThetaVersion(const State& state) {
  uint64_t version = 0;
  for (const FragmentState& fragment : state.fragments) {
    version += fragment.version;
  }
  return version;
}

std::vector<uint64_t> ThetaVersions(const State& state) {
  std::vector<uint64_t> versions;
  if (state.fragments.size() < 2) return versions;
  for (const FragmentState& fragment : state.fragments) {
    versions.push_back(fragment.version);
  }
  return versions;
}

absl::Status Evolve(State& state, const Fact& fact) {
  RETURN_IF_ERROR(std::visit(Apply{state}, fact));
  ++state.revision;
  return absl::OkStatus();
}

Soft StartSoft(const State& state, Instant now) {
  Soft soft;
  soft.started_at = now;
  soft.rounds.assign(state.fragments.size(), Soft::Round{now, now, now});
  soft.eval_opened_at = now;
  return soft;
}

}  // namespace diloco

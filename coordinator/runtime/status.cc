// What operators are shown: status, events, and the calls that change a run.

#include <utility>

#include "common/base/status_macros.h"
#include "coordinator/core/round_policy.h"
#include "coordinator/core/soft.h"
#include "coordinator/runtime/coordinator_impl.h"

namespace diloco {

namespace {

// Beats move the status without a fact.
constexpr absl::Duration kKeepEvery = absl::Seconds(1);

}  // namespace

StatusReport CoordinatorImpl::MakeStatus() const {
  const State& state = sequencer_->state();
  const Soft& soft = sequencer_->soft();
  const Instant now = options_.clock->Now();
  const WorkerView view = ViewFor(sequencer_->policy(), state, soft, "", now);
  StatusReport report;
  report.fencing = fencing_;
  report.run = state.run;
  report.phase = view.phase;
  report.phase_reason = state.finished ? state.finish_reason : view.notice;
  report.folded_tokens = state.folded_tokens;
  report.train_tokens = sequencer_->policy().train_tokens;
  report.batch_tokens = sequencer_->policy().batch_tokens;
  report.parameters = options_.layout.parameters;
  for (uint32_t f = 0; f < state.fragments.size(); ++f) {
    const FragmentState& fragment = state.fragments[f];
    StatusReport::Fragment out;
    out.version = fragment.version;
    out.digest = fragment.digest;
    out.folding = fragment.folding.has_value();
    if (fragment.open.has_value()) {
      out.open_round = fragment.open->round;
      out.open_for = now - soft.rounds[f].started_at;
      // From the opening, as `open_for`: extensions have moved it.
      out.deadline = out.open_for +
                     DeadlineLeft(sequencer_->policy(), state, soft, f, now);
      out.opened_because = fragment.open->reason;
      out.late = LateWorkers(state, *fragment.open);
      out.delivered = static_cast<uint32_t>(fragment.open->committed.size());
      // Nobody waits for those who left, are lost or came late.
      out.leased = static_cast<uint32_t>(
          out.delivered + WaitedFor(state, *fragment.open).size() +
          fragment.open->refused.size());
    }
    report.fragments.push_back(out);
  }
  for (const auto& [name, worker] : state.workers) {
    WorkerReport out;
    out.name = name;
    out.membership = StandingOf(sequencer_->policy(), state, soft, name, now);
    out.since_heard = now - LastHeard(soft, name);
    out.draining = worker.draining;
    out.refusal = worker.refusal;
    out.peer = worker.peer;
    out.rounds_folded = worker.rounds_folded;
    out.tokens_folded = worker.tokens_folded;
    if (const auto it = progress_.find(name); it != progress_.end()) {
      out.progress = it->second;
    }
    for (const FragmentState& fragment : state.fragments) {
      if (!fragment.open.has_value()) continue;
      out.leased |= fragment.open->leases.contains(name);
      out.delivered |= fragment.open->committed.contains(name);
    }
    report.workers.push_back(std::move(out));
  }
  report.eval = state.last_eval;
  report.bytes_per_token = options_.bytes_per_token;
  report.bulk_bytes_received = bulk_received_;
  report.bulk_bytes_sent = bulk_sent_;
  report.uptime = now - started_at_;
  report.last_sequence = sequencer_->last_sequence();
  report.not_ready = NotReady();
  report.settings_digest = state.settings_digest;
  report.settings_revision = state.settings.revision;
  return report;
}

bool CoordinatorImpl::TellsStatus(const State& state, const Fact& fact) {
  if (const auto* report = std::get_if<EvalReported>(&fact)) {
    return state.last_eval.has_value() &&
           state.last_eval->version == report->version;
  }
  return std::holds_alternative<VersionPublished>(fact) ||
         std::holds_alternative<RunFinished>(fact);
}

StatusReport CoordinatorImpl::ReplayedStatus(const State& state) const {
  StatusReport report;
  report.run = state.run;
  report.folded_tokens = state.folded_tokens;
  report.train_tokens = settings_.TrainTokensAt(state);
  report.batch_tokens = options_.policy.batch_tokens;
  report.parameters = options_.layout.parameters;
  report.eval = state.last_eval;
  report.bytes_per_token = options_.bytes_per_token;
  report.settings_digest = state.settings_digest;
  return report;
}

void CoordinatorImpl::KeepStatus() {
  const Instant now = options_.clock->Now();
  const uint64_t revision = sequencer_->state().revision;
  if (revision == kept_revision_ && now - kept_at_ < kKeepEvery) return;
  kept_revision_ = revision;
  kept_at_ = now;
  auto status = std::make_shared<const StatusReport>(MakeStatus());
  MutexLock lock(&kept_mu_);
  kept_status_ = std::move(status);
}

void CoordinatorImpl::GetStatus(Done<StatusReport> done) {
  if (std::string trouble = sequencer_->trouble(); !trouble.empty()) {
    std::shared_ptr<const StatusReport> kept;
    {
      MutexLock lock(&kept_mu_);
      kept = kept_status_;
    }
    if (kept != nullptr) {
      StatusReport report = *kept;
      report.uptime = options_.clock->Now() - started_at_;
      report.not_ready = std::move(trouble);
      return done(std::move(report));
    }
  }
  sequencer_->Post([this, done = std::move(done)](bool alive) {
    if (!alive)
      return done(absl::UnavailableError("the coordinator is stopping"));
    done(MakeStatus());
  });
}

EventsOutcome CoordinatorImpl::MakeEvents(uint64_t after) const {
  return {fencing_, events_.After(after), events_.oldest()};
}

void CoordinatorImpl::GetEvents(uint64_t after_sequence,
                                absl::Duration max_wait,
                                Done<EventsOutcome> done) {
  sequencer_->Post([=, this](bool alive) {
    if (!alive)
      return done(absl::UnavailableError("the coordinator is stopping"));
    if (events_.newest() > after_sequence || max_wait <= absl::ZeroDuration()) {
      return done(MakeEvents(after_sequence));
    }
    event_waiters_.push_back(
        {after_sequence, options_.clock->Now() + max_wait, done});
  });
}

void CoordinatorImpl::ChangeSettings(SettingsChange change,
                                     Done<SettingsChanged> done) {
  sequencer_->Post([this, change = std::move(change),
                    done = std::move(done)](bool alive) {
    if (!alive)
      return done(absl::UnavailableError("the coordinator is stopping"));
    const State& state = sequencer_->state();
    SettingValues values = change.values;
    if (change.decay_tokens > 0) {
      absl::StatusOr<SettingValues> decay =
          settings_.PlanDecay(state, change.decay_tokens);
      if (!decay.ok()) return done(decay.status());
      values = *std::move(decay);
    }
    const absl::StatusOr<SettingsEvent> event =
        settings_.Plan(state, values, change.by, change.reason);
    if (!event.ok()) return done(event.status());
    sequencer_->Submit(*event, [this, changed = ToFact(*event, state), done](
                                   const absl::Status& status, uint64_t) {
      if (!status.ok()) return done(status);
      done(changed);
    });
  });
}

void CoordinatorImpl::GetSettings(Done<SettingsReport> done) {
  sequencer_->Post([this, done = std::move(done)](bool alive) {
    if (!alive)
      return done(absl::UnavailableError("the coordinator is stopping"));
    const State& state = sequencer_->state();
    const absl::StatusOr<SettingsView> accepted = settings_.Accepted(state);
    if (!accepted.ok()) return done(accepted.status());
    done(SettingsReport{fencing_, state.settings.revision,
                        ParseSettings(settings_.in_force()->text),
                        ParseSettings(accepted->text)});
  });
}

void CoordinatorImpl::Admin(Event event,
                            std::function<void(absl::Status)> done) {
  sequencer_->Submit(std::move(event),
                     [done = std::move(done)](const absl::Status& status,
                                              uint64_t) { done(status); });
}

}  // namespace diloco

#include "coordinator/runtime/coordinator_impl.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "coordinator/core/soft.h"
#include "coordinator/store/state_dir.h"

namespace diloco {

CoordinatorImpl::CoordinatorImpl(CoordinatorOptions options)
    : options_(std::move(options)),
      versions_(options_.fs, options_.state_dir),
      spools_(options_.fs, JoinPath(options_.state_dir, kSpoolDir)),
      uploads_(&spools_, options_.clock, options_.max_parallel_uploads),
      metrics_(options_.metrics),
      settings_({0, options_.policy, options_.settings, options_.settings_text},
                options_.changes) {}

CoordinatorImpl::~CoordinatorImpl() { Stop(); }

void CoordinatorImpl::Stop() {
  if (stopped_.exchange(true)) return;
  {
    MutexLock lock(&fold_mu_);
    fold_stop_ = true;
    fold_wake_.SignalAll();
  }
  // The sequencer first: the fold thread may wait for an answer that does not
  // come while the disk is full. A fold that ends after it is folded again by
  // the next start.
  if (sequencer_ != nullptr) sequencer_->Stop();
  if (fold_thread_ != nullptr) fold_thread_->Join();
  fold_thread_.reset();
  if (sequencer_ == nullptr) return;
  // The thread is gone: what waits is answered here.
  const absl::Status stopping =
      absl::UnavailableError("the coordinator is stopping");
  for (Watcher& watcher : watchers_) watcher.done(stopping);
  watchers_.clear();
  for (EventsWaiter& waiter : event_waiters_) waiter.done(stopping);
  event_waiters_.clear();
}

void CoordinatorImpl::Fatal(const absl::Status& status) {
  DILOCO_LOG(ERROR) << "the coordinator cannot go on and ends now; started "
                       "again it recovers what was acknowledged, or stops with "
                       "the same error until the file named there is restored "
                       "from a backup error=\""
                    << status.message() << "\"";
  if (options_.on_fatal) return options_.on_fatal(status);
  // Not exit(): destructors would touch state that is no longer trusted.
  std::_Exit(1);
}

bool CoordinatorImpl::IsPast(const std::string& lineage) const {
  return std::count(past_lineages_.begin(), past_lineages_.end(), lineage) > 0;
}

absl::Status CoordinatorImpl::CheckFencing(const Fencing& fencing) {
  if (superseded_) {
    return absl::FailedPreconditionError(
        "another coordinator has gone on with this run, this one stops");
  }
  if (fencing.lineage.empty()) return absl::OkStatus();
  if (IsPast(fencing.lineage)) {
    return absl::UnauthenticatedError(absl::StrCat(
        "the run goes on in lineage ", ToHex(fencing_.lineage),
        " after a rollback or a restored backup, the caller belongs to ",
        ToHex(fencing.lineage), ": join again"));
  }
  if (fencing.lineage != fencing_.lineage) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this coordinator serves lineage ", ToHex(fencing_.lineage),
        " of run \"", options_.run, "\", the caller belongs to ",
        ToHex(fencing.lineage),
        ": another run or a restored one; use a fresh scratch directory"));
  }
  if (fencing.epoch > fencing_.epoch) {
    return Superseded(absl::StrCat(
        "the caller has seen epoch ", fencing.epoch,
        " of this run, this coordinator is at epoch ", fencing_.epoch,
        ": the state directory was copied, or an older copy of it was put "
        "back"));
  }
  if (fencing.epoch == fencing_.epoch &&
      fencing.boot_nonce != fencing_.boot_nonce) {
    return Superseded(
        absl::StrCat("two coordinators serve epoch ", fencing.epoch,
                     " of this run: the state directory was copied"));
  }
  return absl::OkStatus();
}

absl::Status CoordinatorImpl::Superseded(const std::string& why) {
  if (!superseded_.exchange(true)) {
    DILOCO_LOG(ERROR) << "another coordinator has gone on with this run, this "
                      << "one stops: " << why
                      << "; go on with the other state directory or, if it is "
                      << "lost, make one of " << options_.state_dir
                      << " with dilococtl restore";
    const std::string mark = JoinPath(options_.state_dir, kSupersededMark);
    const absl::Status marked =
        WriteFileAtomic(options_.fs, mark, absl::StrCat(why, "\n"));
    if (!marked.ok()) {
      DILOCO_LOG(ERROR) << mark << ": " << marked.message();
    }
    if (options_.on_superseded) options_.on_superseded();
  }
  return absl::FailedPreconditionError(absl::StrCat(why, "; it stops"));
}

absl::StatusOr<std::string> CoordinatorImpl::Caller(const std::string& session,
                                                    const Fencing& fencing) {
  RETURN_IF_ERROR(CheckFencing(fencing));
  ASSIGN_OR_RETURN(std::string worker,
                   WorkerOfSession(sequencer_->state(), session));
  HearEvent(sequencer_->soft(), BeatEvent{worker}, options_.clock->Now());
  return worker;
}

std::pair<absl::Status, uint64_t> CoordinatorImpl::SubmitAndWait(Event event) {
  struct Box {
    explicit Box(Threads* threads) : ready(threads) {}
    Mutex mu;
    WaitPoint ready;
    bool answered = false;
    absl::Status status;
    uint64_t sequence = 0;
  };
  auto box = std::make_shared<Box>(options_.threads);
  sequencer_->Submit(std::move(event),
                     [box](const absl::Status& status, uint64_t sequence) {
                       MutexLock lock(&box->mu);
                       box->status = status;
                       box->sequence = sequence;
                       box->answered = true;
                       box->ready.SignalAll();
                     });
  MutexLock lock(&box->mu);
  while (!box->answered) box->ready.Wait(&box->mu);
  return {box->status, box->sequence};
}

void CoordinatorImpl::Join(JoinEvent event, Fencing last_seen,
                           std::optional<Digest> settings_digest,
                           Done<JoinOutcome> done) {
  const absl::Status stalled = sequencer_->Stalled();
  if (!stalled.ok()) return done(stalled);
  if (IsPast(last_seen.lineage)) {
    // Its values and its session are of a lineage that has ended.
    event.previous_session.clear();
    event.fresh = true;
    last_seen = Fencing{};
  }
  const absl::Status fencing = CheckFencing(last_seen);
  if (!fencing.ok()) return done(fencing);
  event.new_session = options_.random_bytes(16);
  sequencer_->Post([this, event = std::move(event), settings_digest,
                    done = std::move(done)](bool alive) {
    if (!alive)
      return done(absl::UnavailableError("the coordinator is stopping"));
    const State& state = sequencer_->state();
    // A worker may come back with those of any time of the run.
    if (settings_digest.has_value() &&
        *settings_digest != state.settings_digest &&
        std::find(state.settings.former.begin(), state.settings.former.end(),
                  *settings_digest) == state.settings.former.end()) {
      return done(absl::FailedPreconditionError(absl::StrCat(
          "the worker's scratch belongs to run settings ",
          settings_digest->Short(), ", this run has ",
          state.settings_digest.Short(), ": use a fresh scratch directory")));
    }
    sequencer_->Submit(event, [this, worker = event.worker, done](
                                  const absl::Status& status, uint64_t) {
      if (!status.ok()) return done(status);
      // Runs on the sequencer's thread: the state is the one just evolved.
      const State& joined = sequencer_->state();
      const auto it = joined.workers.find(worker);
      if (it == joined.workers.end()) {
        return done(absl::InternalError("the join left no worker behind"));
      }
      progress_[worker].state.clear();  // It was of the session before.
      done(JoinOutcome{fencing_, it->second.session, settings_.in_force(),
                       joined.settings_digest, it->second.data_end});
    });
  });
}

void CoordinatorImpl::Watch(std::string session, Fencing fencing,
                            uint64_t known_revision, absl::Duration max_wait,
                            Done<ViewOutcome> done) {
  const absl::Status stalled = sequencer_->Stalled();
  if (!stalled.ok()) return done(stalled);
  sequencer_->Post([=, this](bool alive) {
    if (!alive)
      return done(absl::UnavailableError("the coordinator is stopping"));
    const absl::StatusOr<std::string> worker = Caller(session, fencing);
    if (!worker.ok()) return done(worker.status());
    if (sequencer_->state().revision != known_revision ||
        max_wait <= absl::ZeroDuration()) {
      return done(MakeView(*worker));
    }
    watchers_.push_back(
        {session, known_revision, options_.clock->Now() + max_wait, done});
  });
}

ViewOutcome CoordinatorImpl::MakeView(const std::string& worker) {
  const State& state = sequencer_->state();
  ViewOutcome outcome;
  outcome.fencing = fencing_;
  outcome.revision = state.revision;
  outcome.view = ViewFor(sequencer_->policy(), state, sequencer_->soft(),
                         worker, options_.clock->Now());
  for (uint32_t f = 0; f < state.fragments.size(); ++f) {
    const FragmentState& fragment = state.fragments[f];
    outcome.fragments.push_back(
        {f, fragment.version, fragment.digest,
         fragment.open.has_value() ? fragment.open->round : 0});
  }
  outcome.folded_tokens = state.folded_tokens;
  outcome.settings = settings_.in_force();
  // The core knows of no disk.
  const std::string trouble = WriteTrouble();
  if (!trouble.empty()) {
    absl::StrAppend(&outcome.view.notice,
                    outcome.view.notice.empty() ? "" : "; ",
                    "the coordinator waits for disk space: ", trouble);
  }
  return outcome;
}

void CoordinatorImpl::Beat(std::string session, Fencing fencing,
                           WorkerProgress progress, Done<uint64_t> done) {
  const absl::Status stalled = sequencer_->Stalled();
  if (!stalled.ok()) return done(stalled);
  sequencer_->Post([=, this](bool alive) {
    if (!alive)
      return done(absl::UnavailableError("the coordinator is stopping"));
    const absl::StatusOr<std::string> worker = Caller(session, fencing);
    if (!worker.ok()) return done(worker.status());
    const State& state = sequencer_->state();
    const std::string& refusal = state.workers.at(*worker).refusal;
    if (!refusal.empty()) {
      return done(absl::FailedPreconditionError(refusal));
    }
    BeatEvent beat{*worker, progress.step_seconds};
    beat.window = WindowReport{progress.round,        progress.window_step,
                               progress.unsent_steps, progress.unsent_tokens,
                               progress.version,      progress.digest};
    beat.others = progress.others;
    if (const absl::Status held = CheckHeld(beat); !held.ok()) {
      return done(held);
    }
    HearEvent(sequencer_->soft(), beat, options_.clock->Now());
    progress_[*worker] = progress;
    const Membership membership = state.workers.at(*worker).membership;
    if (membership == Membership::kActive) {
      metrics_.SetWorker(*worker, progress);
    }
    if (progress.probe.has_value() && membership != Membership::kLeft) {
      return TakeProbe(*worker, *progress.probe, done);
    }
    if (membership == Membership::kLost) {
      sequencer_->Submit(beat, nullptr);
    }
    done(state.revision);
  });
}

// The copies of fragments that a worker holds, against what was published.
absl::Status CoordinatorImpl::CheckHeld(const BeatEvent& beat) {
  const State& state = sequencer_->state();
  std::vector<WindowReport> held = beat.others;
  held.push_back(*beat.window);
  for (const WindowReport& copy : held) {
    if (copy.fragment >= state.fragments.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "worker ", beat.worker, " tells of fragment ", copy.fragment,
          ", the run has ", state.fragments.size()));
    }
    const FragmentState& of = state.fragments[copy.fragment];
    const std::string fragment =
        state.fragments.size() < 2
            ? ""
            : absl::StrCat(" of fragment ", copy.fragment);
    if (copy.version > of.version) {
      return Superseded(absl::StrCat(
          "worker ", beat.worker, " holds version ", copy.version, fragment,
          " of this lineage, the newest here is ", of.version,
          ": an older copy of the state directory was put back"));
    }
    if (!copy.digest.has_value() || copy.version != of.version ||
        *copy.digest == of.digest) {
      continue;
    }
    std::string& alarm = digest_alarms_[beat.worker];
    const std::string now =
        absl::StrCat(copy.version, fragment, copy.digest->Short());
    if (alarm == now) continue;
    alarm = now;
    metrics_.digest_mismatches->Increment();
    DILOCO_LOG(ERROR) << "digest differs run=" << state.run
                      << " worker=" << beat.worker
                      << " fragment=" << copy.fragment
                      << " version=" << copy.version
                      << " worker_digest=" << copy.digest->Short()
                      << " published=" << of.digest.Short()
                      << " hint=\"the worker downloads theta afresh\"";
  }
  return absl::OkStatus();
}

void CoordinatorImpl::TakeProbe(const std::string& worker, ProbeEvent probe,
                                Done<uint64_t> done) {
  probe.worker = worker;
  if (!sequencer_->soft().workers[worker].probed) {
    metrics_.CountProbe(JudgeProbe(sequencer_->state(), probe).kind);
  }
  sequencer_->Submit(
      std::move(probe),
      [this, worker, done](const absl::Status& status, uint64_t) {
        if (!status.ok()) return done(status);
        const State& state = sequencer_->state();
        const auto known = state.workers.find(worker);
        if (known != state.workers.end() && !known->second.refusal.empty()) {
          return done(absl::FailedPreconditionError(known->second.refusal));
        }
        done(state.revision);
      });
}

absl::StatusOr<ResolveOutcome> CoordinatorImpl::ResolveNow(
    uint32_t fragment, std::optional<uint64_t> have) {
  const State& state = sequencer_->state();
  if (fragment >= state.fragments.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("fragment ", fragment, " does not exist; the run has ",
                     state.fragments.size()));
  }
  ResolveOutcome outcome;
  outcome.fencing = fencing_;
  outcome.version = state.fragments[fragment].version;
  ASSIGN_OR_RETURN(outcome.steps,
                   versions_.Resolve(fragment, have, outcome.version,
                                     options_.clock->Now() + kReaderPin));
  return outcome;
}

void CoordinatorImpl::Resolve(std::string session, Fencing fencing,
                              uint32_t fragment, std::optional<uint64_t> have,
                              Done<ResolveOutcome> done) {
  const absl::Status stalled = sequencer_->Stalled();
  if (!stalled.ok()) return done(stalled);
  sequencer_->Post([=, this](bool alive) {
    if (!alive)
      return done(absl::UnavailableError("the coordinator is stopping"));
    const absl::StatusOr<std::string> worker = Caller(session, fencing);
    if (!worker.ok()) return done(worker.status());
    done(ResolveNow(fragment, have));
  });
}

void CoordinatorImpl::ResolveForExport(uint32_t fragment,
                                       Done<ResolveOutcome> done) {
  sequencer_->Post([=, this](bool alive) {
    if (!alive)
      return done(absl::UnavailableError("the coordinator is stopping"));
    done(ResolveNow(fragment, std::nullopt));
  });
}

void CoordinatorImpl::ReportEval(std::string session, Fencing fencing,
                                 EvalReportEvent report,
                                 std::function<void(absl::Status)> done) {
  const absl::Status stalled = sequencer_->Stalled();
  if (!stalled.ok()) return done(stalled);
  sequencer_->Post([=, this](bool alive) mutable {
    if (!alive)
      return done(absl::UnavailableError("the coordinator is stopping"));
    const absl::StatusOr<std::string> worker = Caller(session, fencing);
    if (!worker.ok()) return done(worker.status());
    report.worker = *worker;
    sequencer_->Submit(std::move(report), [done](const absl::Status& status,
                                                 uint64_t) { done(status); });
  });
}

void CoordinatorImpl::Leave(std::string session, Fencing fencing,
                            std::string reason,
                            std::function<void(absl::Status)> done) {
  const absl::Status stalled = sequencer_->Stalled();
  if (!stalled.ok()) return done(stalled);
  sequencer_->Post([=, this](bool alive) {
    if (!alive)
      return done(absl::UnavailableError("the coordinator is stopping"));
    const absl::StatusOr<std::string> worker = Caller(session, fencing);
    if (!worker.ok()) return done(worker.status());
    sequencer_->Submit(
        LeaveEvent{*worker, reason},
        [done](const absl::Status& status, uint64_t) { done(status); });
  });
}

void CoordinatorImpl::OnDurable(const std::vector<AppliedFact>& facts) {
  const absl::Time wall = options_.clock->WallTime();
  {
    MutexLock lock(&fold_mu_);
    for (const AppliedFact& applied : facts) to_learn_.push_back(applied.fact);
  }
  for (const AppliedFact& applied : facts) {
    metrics_.Count(applied.fact);
    EventReport event{applied.sequence, wall, applied.fact, std::nullopt};
    if (const auto* version = std::get_if<VersionPublished>(&applied.fact)) {
      versions_.Learn(applied.fact);
      fold_running_[version->fragment] = false;
    }
    if (const auto* closed = std::get_if<RoundClosed>(&applied.fact)) {
      uploads_.CancelRound(closed->fragment, closed->round);
    }
    if (const auto* departed = std::get_if<WorkerDeparted>(&applied.fact)) {
      metrics_.RemoveWorker(departed->worker);
    }
    if (std::holds_alternative<WorkerJoined>(applied.fact)) ForgetWorkers();
    if (TellsStatus(sequencer_->state(), applied.fact)) {
      event.status = MakeStatus();
    }
    events_.Add(std::move(event));
  }
  metrics_.SetState(sequencer_->state());
}

void CoordinatorImpl::ForgetWorkers() {
  const State& state = sequencer_->state();
  const auto forgotten = [&state](const auto& entry) {
    return !state.workers.contains(entry.first);
  };
  std::erase_if(progress_, forgotten);
  std::erase_if(digest_alarms_, forgotten);
  std::erase_if(sequencer_->soft().workers, forgotten);
}

void CoordinatorImpl::AfterBatch() {
  KeepStatus();
  StartFolds();
  const Instant now = options_.clock->Now();
  const State& state = sequencer_->state();
  std::vector<Watcher> due;
  std::erase_if(watchers_, [&](Watcher& watcher) {
    if (watcher.known_revision == state.revision && now < watcher.answer_at) {
      return false;
    }
    due.push_back(std::move(watcher));
    return true;
  });
  for (Watcher& watcher : due) {
    const absl::StatusOr<std::string> worker =
        WorkerOfSession(state, watcher.session);
    if (worker.ok()) {
      watcher.done(MakeView(*worker));
    } else {
      watcher.done(worker.status());
    }
  }
  std::vector<EventsWaiter> ready;
  std::erase_if(event_waiters_, [&](EventsWaiter& waiter) {
    if (events_.newest() <= waiter.after && now < waiter.answer_at) {
      return false;
    }
    ready.push_back(std::move(waiter));
    return true;
  });
  for (EventsWaiter& waiter : ready) waiter.done(MakeEvents(waiter.after));
}

std::string CoordinatorImpl::NotReady() const {
  if (stopped_) return "stopping";
  std::string trouble = sequencer_->trouble();
  if (trouble.empty()) trouble = WriteTrouble();
  if (!trouble.empty()) return trouble;
  MutexLock lock(&fold_mu_);
  return no_room_;
}

std::string CoordinatorImpl::WriteTrouble() const {
  const std::string trouble = uploads_.trouble();
  if (!trouble.empty()) return trouble;
  MutexLock lock(&fold_mu_);
  return fold_trouble_;
}

}  // namespace diloco

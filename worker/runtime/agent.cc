#include "worker/runtime/agent.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "worker/core/schedule.h"

namespace diloco {
namespace {

constexpr absl::Duration kIdleWait = absl::Seconds(5);
constexpr absl::Duration kRetryWait = absl::Milliseconds(500);

// What another try may mend: the coordinator is away, a file was replaced.
bool MayRetry(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsNotFound(status) || absl::IsCancelled(status) ||
         absl::IsAborted(status);
}

// Files that the worker's own file names: whatever makes them unusable is to be
// mended there, and not what FAILED_PRECONDITION of a coordinator means.
absl::Status AsConfigured(const absl::Status& status) {
  if (!absl::IsInternal(status) && !absl::IsFailedPrecondition(status)) {
    return status;
  }
  return absl::InvalidArgumentError(status.message());
}

ViewInput::Lease ToLease(const RunView::Lease& lease) {
  return {lease.round,         lease.base_version, lease.steps,
          lease.delivered,     lease.window_steps, lease.progress,
          lease.progress_step, lease.last,         lease.due_step,
          lease.round_steps};
}

// A lease that the view has, as an action of it is under way.
const RunView::Lease& LeaseOf(const RunView& view, uint32_t fragment) {
  for (const RunView::Lease& lease : view.leases) {
    if (lease.fragment == fragment) return lease;
  }
  DILOCO_CHECK(false) << "no lease of fragment " << fragment;
  return view.leases[0];
}

}  // namespace

Agent::Agent(AgentOptions options)
    : options_(std::move(options)),
      metrics_(options_.metrics),
      checkpoints_(options_.fs, options_.scratch),
      writer_(std::make_unique<BackgroundWriter>(&checkpoints_,
                                                 options_.threads)) {}

Agent::~Agent() = default;

absl::Status Agent::Run() {
  RETURN_IF_ERROR(AsConfigured(OpenScratch()));
  absl::StatusOr<std::unique_ptr<BatchSource>> data = options_.open_data();
  RETURN_IF_ERROR(AsConfigured(data.status()));
  data_ = *std::move(data);
  absl::Status status = JoinRun();
  if (absl::IsCancelled(status) && options_.stop_requested()) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(status);
  status = PrepareTraining();
  if (status.ok()) status = RestoreCheckpoint();
  if (status.ok()) {
    last_checkpoint_ = last_log_ = options_.clock->Now();
    status = Loop();
  }
  // The coordinator does not know the session: once in each lineage, a new one
  // may help.
  bool may_join = true;
  while (absl::IsUnauthenticated(status) && may_join) {
    DILOCO_LOG(WARNING) << "joins again worker=" << options_.worker
                        << " cause=\"" << status.message() << "\"";
    const std::string lineage = identity_->fencing.lineage;
    status = JoinRun();
    may_join = status.ok() && joined_.fencing.lineage != lineage;
    if (may_join) status = StartAfresh();
    if (status.ok()) status = Loop();
    if (absl::IsCancelled(status) && options_.stop_requested()) {
      status = absl::OkStatus();
    }
  }
  Finish(status);
  return status;
}

uint32_t Agent::FragmentAtWork() const {
  uint32_t nearest = 0;
  for (uint32_t i = 1; i < local_.fragments.size(); ++i) {
    const HeldFragment& other = local_.fragments[nearest];
    const HeldFragment& fragment = local_.fragments[i];
    const bool idle = other.window.delivered && !fragment.window.delivered;
    if (fragment.window.delivered == other.window.delivered
            ? fragment.window.steps > other.window.steps
            : idle) {
      nearest = i;
    }
  }
  return nearest;
}

bool Agent::HoldsAll() const {
  return !local_.fragments.empty() &&
         std::all_of(local_.fragments.begin(), local_.fragments.end(),
                     [](const HeldFragment& fragment) {
                       return fragment.version.has_value();
                     });
}

void Agent::Report(const std::string& state) {
  progress_.state = state;
  progress_.inner_steps = inner_steps_;
  // Until this window is timed, the rate of the one before stands.
  if (window_timed_ > 0) {
    progress_.step_seconds = window_seconds_ / window_timed_;
  }
  progress_.others.clear();
  for (uint32_t i = 0; i < local_.fragments.size(); ++i) {
    const HeldFragment& held = local_.fragments[i];
    const Window& window = held.window;
    ProgressReport::FragmentProgress own;
    own.fragment = i;
    own.round = window.round;
    own.window_step = window.steps_done;
    own.unsent_steps = window.delivered ? 0 : window.steps;
    own.unsent_tokens = window.delivered ? 0 : window.tokens;
    own.version = held.version.value_or(0);
    if (held.version.has_value()) own.digest = copies_[i].digest;
    if (i > 0) {
      progress_.others.push_back(own);
      continue;
    }
    progress_.round = own.round;
    progress_.window_step = own.window_step;
    progress_.unsent_steps = own.unsent_steps;
    progress_.unsent_tokens = own.unsent_tokens;
    if (!held.version.has_value()) continue;
    progress_.version = own.version;
    progress_.digest = own.digest;
  }
  link_->SetProgress(progress_);
}

ViewInput Agent::ToInput(const RunView& view, Leaving leaving) const {
  ViewInput input;
  input.leaving = leaving;
  switch (view.phase) {
    case RunView::Phase::kWaiting:
      input.phase = ViewInput::Phase::kWaiting;
      break;
    case RunView::Phase::kRunning:
      input.phase = ViewInput::Phase::kRunning;
      break;
    case RunView::Phase::kPaused:
      input.phase = ViewInput::Phase::kPaused;
      break;
    case RunView::Phase::kFinished:
      input.phase = ViewInput::Phase::kFinished;
      break;
  }
  input.fragments.resize(local_.fragments.size());
  for (const RunView::Fragment& seen : view.fragments) {
    if (seen.fragment >= input.fragments.size()) continue;
    ViewInput::Fragment& fragment = input.fragments[seen.fragment];
    fragment.version = seen.version;
    fragment.damaged =
        local_.fragments[seen.fragment].version == seen.version &&
        copies_[seen.fragment].digest != seen.digest;
  }
  for (const RunView::Lease& lease : view.leases) {
    if (lease.fragment >= input.fragments.size()) continue;
    input.fragments[lease.fragment].lease = ToLease(lease);
  }
  for (const RunView::Eval& eval : view.evals) {
    input.evals.push_back({eval.version, eval.slice, eval.versions});
  }
  return input;
}

SyncRules Agent::Rules() const {
  const RunSettings& settings = joined_.settings;
  return {settings.late, settings.overlap, settings.merge == MergeMode::kSlip};
}

void Agent::TakeOverSettings(const RunView& view) {
  if (view.settings_revision == joined_.settings_revision) return;
  joined_.settings_revision = view.settings_revision;
  joined_.settings = view.settings;
  const TrainSettings& train = joined_.settings.train;
  DILOCO_LOG(INFO) << "takes over changed settings worker=" << options_.worker
                   << " revision=" << view.settings_revision
                   << " tokens=" << train.tokens
                   << " batch_tokens=" << train.batch_tokens
                   << " lr=" << train.lr
                   << " warmup_tokens=" << train.warmup_tokens
                   << " decay_share=" << train.decay_share
                   << " min_lr=" << train.min_lr
                   << " up=" << CodecName(joined_.settings.codec_up);
}

absl::Status Agent::Loop() {
  using Kind = Action::Kind;
  while (true) {
    RETURN_IF_ERROR(link_->fatal());
    const std::optional<RunView> view = link_->view();
    const std::optional<Leaving> leaving = LookWhetherToLeave(view);
    if (!leaving.has_value()) return absl::OkStatus();
    RETURN_IF_ERROR(SaveInBackground());
    if (!view.has_value()) {
      link_->WaitForChange(0, absl::Milliseconds(200));
      continue;
    }
    if (view->fencing.epoch > joined_.fencing.epoch) {
      joined_.fencing = identity_->fencing = view->fencing;
      RETURN_IF_ERROR(SaveIdentity(options_.fs, options_.scratch, *identity_));
    }
    TakeOverSettings(*view);
    const Instant begin = options_.clock->Now();
    absl::Status status = CollectJobs(*view, *leaving);
    for (size_t i = 0; i < copies_.size(); ++i) {
      const Copy& copy = copies_[i];
      HeldFragment& held = local_.fragments[i];
      held.taken_round =
          copy.spooled.has_value() ? copy.spooled->round : copy.spooling_round;
      held.busy = copy.spooling != nullptr || copy.sending != nullptr ||
                  copy.fetching != nullptr;
    }
    stalled_ += options_.clock->Now() - begin;
    Action action;
    if (status.ok()) {
      action = NextAction(local_, ToInput(*view, *leaving), Rules());
    }
    if (!action.reason.empty() && action.reason != last_reason_) {
      last_reason_ = action.reason;
      DILOCO_LOG(INFO) << action.reason << " worker=" << options_.worker;
    }
    if (action.kind == Kind::kLeave || action.kind == Kind::kFinish) {
      return absl::OkStatus();
    }
    if (status.ok()) status = Perform(action, *view);
    if (!status.ok()) {
      if (!MayRetry(status)) return status;
      RETURN_IF_ERROR(link_->fatal());
      // Cancelled: a transfer that nobody wants any more; the next view says
      // what is wanted instead.
      if (!absl::IsCancelled(status) && last_reason_ != status.message()) {
        last_reason_ = std::string(status.message());
        DILOCO_LOG(WARNING) << "trying again worker=" << options_.worker
                            << " error=\"" << status.message() << "\"";
      }
      link_->WaitForChange(view->revision, kRetryWait);
    }
  }
}

absl::Status Agent::Perform(const Action& action, const RunView& view) {
  using Kind = Action::Kind;
  const Instant begin = options_.clock->Now();
  absl::Status status;
  switch (action.kind) {
    case Kind::kPull:
      if (local_.fragments[action.fragment].version.has_value()) {
        Alarm(action.fragment, action.version, action.reason);
      }
      Report("downloading");
      status = Pull(action.fragment, action.version);
      break;
    case Kind::kCatchUp: {
      const HeldFragment& fragment = local_.fragments[action.fragment];
      status = Settle(action.fragment);
      if (!status.ok()) break;
      Report("downloading");
      status = CatchUp(action.fragment, action.version,
                       action.carry && !fragment.window.delivered);
      stalled_ += options_.clock->Now() - begin;
      if (!status.ok()) break;
      Report("applied");
      metrics_.stall_seconds->Observe(absl::ToDoubleSeconds(stalled_));
      stalled_ = absl::ZeroDuration();
      break;
    }
    case Kind::kProbe:
      Report("probing");
      status = Probe(view);
      break;
    case Kind::kEvaluate:
      Report("evaluating");
      status = EvaluateSlice(view, action.version, action.slice);
      break;
    case Kind::kBegin: {
      const HeldFragment& fragment = local_.fragments[action.fragment];
      status = Settle(action.fragment);
      if (!status.ok()) break;
      status = Begin(LeaseOf(view, action.fragment),
                     action.carry && !fragment.window.delivered);
      break;
    }
    case Kind::kStep:
      status = TrainStep(view);
      break;
    case Kind::kSubmit:
      status = Submit(LeaseOf(view, action.fragment));
      if (status.ok()) Report("waiting");
      stalled_ += options_.clock->Now() - begin;
      break;
    case Kind::kWait: {
      Report("waiting");
      link_->WaitForChange(view.revision, kIdleWait);
      const absl::Duration waited = options_.clock->Now() - begin;
      // A pause is nobody's waste.
      if (view.phase != RunView::Phase::kPaused) {
        progress_.wait_seconds += absl::ToDoubleSeconds(waited);
      }
      if (std::any_of(local_.fragments.begin(), local_.fragments.end(),
                      IsTaken)) {
        stalled_ += waited;
      }
      break;
    }
    case Kind::kLeave:
    case Kind::kFinish:
      break;
  }
  return status;
}

absl::Status Agent::Begin(const RunView::Lease& lease, bool carry) {
  HeldFragment& fragment = local_.fragments[lease.fragment];
  if (!carry && fragment.window.steps > 0) {
    std::vector<float> anchor(
        static_cast<size_t>(layout_.fragments[lease.fragment].elements));
    RETURN_IF_ERROR(
        trainer_->ReadAnchor(lease.fragment, absl::MakeSpan(anchor)));
    RETURN_IF_ERROR(trainer_->Load(lease.fragment, anchor));
  }
  BeginWindow(fragment, ToLease(lease), carry);
  ForgetSpooled(lease.fragment);
  if (fragment.window.steps_done == 0) {
    window_seconds_ = 0;
    window_timed_ = 0;
  }
  return absl::OkStatus();
}

absl::Status Agent::TrainStep(const RunView& view) {
  const TrainSettings& train = joined_.settings.train;
  uint32_t leased = 0;
  double pace = 0;
  for (const RunView::Lease& lease : view.leases) {
    leased = std::max(leased, lease.steps);
    pace = std::max(pace, lease.progress_step);
    // Settings that were changed may have moved it.
    Window& window = local_.fragments[lease.fragment].window;
    if (lease.round != window.round) continue;
    window.progress = lease.progress;
    window.progress_step = lease.progress_step;
  }
  const int64_t windows = static_cast<int64_t>(train.batch_tokens) /
                          static_cast<int64_t>(train.seq_len);
  const Instant begin = options_.clock->Now();
  ASSIGN_OR_RETURN(const Batch batch, data_->Read(cursor_, windows));
  const double progress =
      FollowProgress(local_.progress, ProgressOfNextStep(local_), pace, leased);
  double lr = LearningRate(train, progress);
  if (ramp_left_ > 0) {
    const uint32_t ramp = joined_.settings.join_ramp_steps;
    lr *= JoinRamp(ramp - ramp_left_, ramp);
    --ramp_left_;
  }
  ASSIGN_OR_RETURN(const StepResult result, trainer_->Step(batch, lr));
  cursor_ += static_cast<uint64_t>(windows);
  ++inner_steps_;
  local_.progress = progress;
  progress_.tokens += result.tokens;
  CountStep(local_, result.tokens, lr,
            result.skipped ? std::nullopt : std::make_optional(result.loss));
  metrics_.inner_steps->Increment();
  metrics_.tokens->Increment(static_cast<double>(result.tokens));
  if (result.skipped) {
    metrics_.skipped->Increment();
    ++progress_.skipped_steps;
    ++skipped_in_a_row_;
    DILOCO_LOG(WARNING) << "step skipped: loss or gradient is not finite step="
                        << inner_steps_ << " loss=" << result.loss
                        << " grad_norm=" << result.grad_norm
                        << " in_a_row=" << skipped_in_a_row_;
    if (skipped_in_a_row_ >= train.max_skipped_steps) {
      return absl::InternalError(absl::StrCat(
          skipped_in_a_row_,
          " steps in a row had a non-finite loss or "
          "gradient, the last at step ",
          inner_steps_, " with loss ", result.loss, " and gradient norm ",
          result.grad_norm,
          ": check the data and the learning rate; nothing was sent"));
    }
  } else {
    skipped_in_a_row_ = 0;
  }
  const double seconds = absl::ToDoubleSeconds(options_.clock->Now() - begin);
  progress_.train_seconds += seconds;
  const uint32_t at_work = FragmentAtWork();
  const Window& window = local_.fragments[at_work].window;
  // A window's first step warms caches and is left out of the rate.
  if (window.steps_done > 1) {
    window_seconds_ += seconds;
    ++window_timed_;
  }
  progress_.loss = result.loss;
  progress_.grad_norm = result.grad_norm;
  progress_.lr = lr;
  metrics_.loss->Set(result.loss);
  metrics_.grad_norm->Set(result.grad_norm);
  metrics_.learning_rate->Set(lr);
  metrics_.step_seconds->Observe(seconds);
  Report("training");
  const Instant now = options_.clock->Now();
  const RunView::Lease* lease = nullptr;
  for (const RunView::Lease& one : view.leases) {
    if (one.fragment == at_work && one.round == window.round) lease = &one;
  }
  const uint32_t steps = lease == nullptr ? 0 : lease->steps;
  if (now - last_log_ >= options_.log_every || window.steps_done == steps) {
    last_log_ = now;
    DILOCO_LOG(INFO) << absl::StrFormat(
        "inner step %d | round %d (%d/%d) | loss %.4f | gnorm %.3f | lr %.2e | "
        "%.1f ms | %.0f tok/s | schedule at %.1f%%",
        inner_steps_, window.round, window.steps_done, steps, result.loss,
        result.grad_norm, lr, seconds * 1e3,
        static_cast<double>(result.tokens) / std::max(seconds, 1e-9),
        100 * progress);
  }
  return absl::OkStatus();
}

}  // namespace diloco

// Start of an agent: scratch directory, join, settings, model, checkpoint.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/backoff.h"
#include "common/base/ids.h"
#include "common/base/logging.h"
#include "common/base/mutex.h"
#include "common/base/random_source.h"
#include "common/base/status_macros.h"
#include "common/base/threads.h"
#include "common/model/fragments.h"
#include "common/model/model_config.h"
#include "worker/runtime/agent.h"

namespace diloco {
namespace {

constexpr absl::Duration kStopLook = absl::Milliseconds(50);
// Of the time to leave; the rest is for the last checkpoint and the farewell.
constexpr double kHandInShare = 0.8;

// What waiting may mend: nobody answers, no room in the run, or the name is
// held until the lease of the process before has run out.
bool MayJoinLater(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status) || absl::IsAlreadyExists(status);
}

}  // namespace

void Agent::PauseUnlessStopped(absl::Duration pause) {
  Mutex mu;
  WaitPoint never(options_.threads);
  MutexLock lock(&mu);
  const Instant end = options_.clock->Now() + pause;
  while (options_.clock->Now() < end && !options_.stop_requested()) {
    never.WaitFor(&mu, kStopLook);
  }
}

absl::Status Agent::OpenScratch() {
  RETURN_IF_ERROR(options_.fs->CreateDirs(options_.scratch));
  absl::StatusOr<std::unique_ptr<FileLock>> lock =
      options_.fs->Lock(JoinPath(options_.scratch, "LOCK"));
  if (absl::IsFailedPrecondition(lock.status())) {
    // Temporary: the process before may still be on its way out.
    return absl::UnavailableError(lock.status().message());
  }
  ASSIGN_OR_RETURN(lock_, std::move(lock));
  ASSIGN_OR_RETURN(identity_, LoadIdentity(options_.fs, options_.scratch));
  if (identity_.has_value() && identity_->worker != options_.worker) {
    return absl::FailedPreconditionError(
        absl::StrCat(options_.scratch, " belongs to worker \"",
                     identity_->worker, "\", this one is \"", options_.worker,
                     "\": give each worker a scratch directory of its own"));
  }
  ASSIGN_OR_RETURN(restored_, checkpoints_.LoadNewest());
  if (restored_.has_value() &&
      (!identity_.has_value() ||
       restored_->header.lineage != identity_->fencing.lineage)) {
    DILOCO_LOG(WARNING) << "the checkpoint is of another run and not used";
    restored_.reset();
  }
  fresh_ = !restored_.has_value();
  if (restored_.has_value()) {
    // Before the first beat: what it says does not go back.
    const WorkTotals& totals = restored_->header.totals;
    progress_.tokens = totals.tokens;
    progress_.skipped_steps = totals.skipped_steps;
    progress_.train_seconds = totals.train_seconds;
    progress_.transfer_seconds = totals.transfer_seconds;
    progress_.wait_seconds = totals.wait_seconds;
    progress_.earlier_bytes_sent = totals.bytes_sent;
    progress_.earlier_bytes_received = totals.bytes_received;
    inner_steps_ = restored_->header.inner_steps;
    writer_->set_durable_steps(inner_steps_);
  }
  return absl::OkStatus();
}

absl::Status Agent::JoinRun() {
  if (link_ != nullptr) {
    // What it knows is of the session before, and not for the next one.
    link_->Stop();
    for (Copy& copy : copies_) EndJobs(copy);
  }
  JoinCall call;
  call.run = options_.run;
  call.worker = options_.worker;
  call.attempt = options_.random_bytes(16);
  if (identity_.has_value()) {
    call.previous_session = identity_->session;
    call.last_seen = identity_->fencing;
    call.settings_digest = identity_->settings_digest;
  }
  call.fresh = fresh_;
  call.take_over = options_.take_over;
  call.data_tokens = data_->tokens();
  call.max_token = data_->max_token();
  Backoff backoff;
  const Instant give_up = options_.clock->Now() + options_.connect_timeout;
  absl::StatusCode told = absl::StatusCode::kOk;
  while (true) {
    absl::StatusOr<JoinReply> reply = options_.port->Join(call);
    if (reply.ok()) {
      joined_ = *std::move(reply);
      break;
    }
    const absl::Status& refusal = reply.status();
    if (options_.stop_requested()) return absl::CancelledError("stopped");
    if (absl::IsInvalidArgument(refusal)) {
      return WithContext(refusal, data_->Describe());
    }
    if (!MayJoinLater(refusal)) return refusal;
    if (options_.clock->Now() >= give_up) {
      if (absl::IsUnavailable(refusal) || absl::IsDeadlineExceeded(refusal)) {
        return absl::UnavailableError(absl::StrCat(
            refusal.message(), "; nobody answered for ",
            absl::FormatDuration(options_.connect_timeout),
            " (connect_timeout): check that the coordinator runs, its address "
            "in the worker's file and the way to it, then start again"));
      }
      return refusal;
    }
    if (told != refusal.code()) {
      told = refusal.code();
      DILOCO_LOG(WARNING) << "cannot join yet, trying on worker="
                          << options_.worker << " for="
                          << absl::FormatDuration(options_.connect_timeout)
                          << " error=\"" << refusal.message() << "\"";
    }
    PauseUnlessStopped(backoff.Next(Draw(options_.random_bytes)));
  }
  if (!options_.lineage.empty() &&
      joined_.fencing.lineage != options_.lineage) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this worker is pinned to lineage ", ToHex(options_.lineage),
        ", the coordinator serves ", ToHex(joined_.fencing.lineage),
        ": change `lineage` in the worker's file or its address"));
  }
  if (identity_.has_value() &&
      identity_->fencing.lineage != joined_.fencing.lineage) {
    DropHeld();
  }
  // Before the session is used for anything: a crash from here on must find it.
  identity_ =
      WorkerIdentity{options_.worker, joined_.settings.run, joined_.session,
                     joined_.fencing, joined_.settings_digest};
  RETURN_IF_ERROR(SaveIdentity(options_.fs, options_.scratch, *identity_));
  DILOCO_LOG(INFO) << "joined run=" << joined_.settings.run
                   << " worker=" << options_.worker
                   << " epoch=" << joined_.fencing.epoch
                   << " settings=" << joined_.settings_digest.Short()
                   << (fresh_ ? " state=fresh" : " state=checkpoint");
  fresh_ = false;  // Should it join once more.
  Link::Options link;
  link.port = options_.port;
  link.clock = options_.clock;
  link.threads = options_.threads;
  link.random_bytes = options_.random_bytes;
  link.beat_every = joined_.beat_every;
  link.stop_requested = options_.stop_requested;
  link.hand_in_time = kHandInShare * options_.drain_timeout;
  link_ = std::make_unique<Link>(std::move(link));
  Report("starting");
  link_->Start();
  return absl::OkStatus();
}

absl::Status Agent::PrepareTraining() {
  const RunSettings& settings = joined_.settings;
  RETURN_IF_ERROR(ValidateModel(settings.model));
  ASSIGN_OR_RETURN(layout_, ModelLayout(settings.model, settings.fragments));
  if (layout_.ComputeDigest() != settings.layout_digest) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this worker lays the model out as ", layout_.ComputeDigest().Short(),
        ", the coordinator as ", settings.layout_digest.Short(),
        ": run the same build on both sides"));
  }
  RETURN_IF_ERROR(data_->Prepare(settings));
  ASSIGN_OR_RETURN(trainer_, options_.make_trainer(settings, layout_));
  HoldNothing();
  return absl::OkStatus();
}

void Agent::HoldNothing() {
  local_ = LocalState{};
  local_.fragments.resize(layout_.fragments.size());
  copies_ = std::vector<Copy>(layout_.fragments.size());
}

void Agent::DropHeld() {
  const bool holds = std::any_of(
      local_.fragments.begin(), local_.fragments.end(),
      [](const HeldFragment& held) { return held.version.has_value(); });
  if (holds || restored_.has_value()) {
    DILOCO_LOG(WARNING) << "the run was rolled back or restored; this worker "
                           "drops what it holds and pulls theta worker="
                        << options_.worker;
  }
  restored_.reset();
  HoldNothing();
  progress_.version = 0;
  progress_.digest.reset();
}

absl::Status Agent::StartAfresh() {
  ASSIGN_OR_RETURN(trainer_, options_.make_trainer(joined_.settings, layout_));
  return RestoreCheckpoint();
}

absl::Status Agent::RestoreCheckpoint() {
  if (!restored_.has_value()) {
    // What was folded of its data is not drawn again, whatever was lost here.
    cursor_ =
        std::max(cursor_, joined_.data_end / joined_.settings.train.seq_len);
    // A cold AdamW in a run that has moved on starts with a ramp.
    ramp_left_ = joined_.settings.join_ramp_steps;
    local_.probe_due = joined_.settings.join_probe;
    return absl::OkStatus();
  }
  const CheckpointHeader& header = restored_->header;
  if (header.layout_digest != joined_.settings.layout_digest) {
    return absl::FailedPreconditionError(
        absl::StrCat(options_.scratch,
                     " holds a checkpoint of another model; remove it to join "
                     "afresh"));
  }
  if (header.local.fragments.size() != local_.fragments.size()) {
    return absl::DataLossError(absl::StrCat(
        options_.scratch, " holds a checkpoint of ",
        header.local.fragments.size(), " fragments, the model's layout has ",
        local_.fragments.size(), "; remove it to join afresh"));
  }
  RETURN_IF_ERROR(ImportBuffers(restored_->buffers));
  trainer_->set_optimizer_steps(header.optimizer_steps);
  local_ = header.local;
  cursor_ = header.data_cursor;
  ramp_left_ = header.ramp_steps_left;
  for (uint32_t i = 0; i < copies_.size(); ++i) {
    copies_[i].spooled = header.spooled[i];
    copies_[i].digest = trainer_->AnchorDigest(i);
  }
  const HeldFragment& held = local_.fragments[FragmentAtWork()];
  DILOCO_LOG(INFO) << "goes on from a checkpoint version="
                   << held.version.value_or(0) << " round=" << held.window.round
                   << " window_step=" << held.window.steps_done
                   << " inner_steps=" << inner_steps_;
  restored_.reset();
  return absl::OkStatus();
}

}  // namespace diloco

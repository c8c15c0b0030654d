#include "worker/simulate/port_values.h"

namespace diloco {
namespace {

RunView::Eval EvalOf(const EvalView& eval,
                     const std::optional<FileRef>& shard) {
  RunView::Eval slice;
  slice.version = eval.version;
  slice.slice = eval.slice;
  slice.first_window = eval.first_window;
  slice.windows = eval.windows;
  slice.versions = eval.versions;
  if (!shard.has_value()) return slice;
  slice.shard_digest = shard->digest;
  slice.shard_bytes = shard->bytes;
  return slice;
}

}  // namespace

UpdateValue ValueOf(const UpdateOffer& offer) {
  UpdateValue value;
  value.base_version = offer.base_version;
  value.base_digest = offer.base_digest;
  value.bytes = offer.bytes;
  value.digest = offer.digest;
  value.codec = offer.codec;
  value.tokens = offer.tokens;
  value.steps = offer.steps;
  value.loss = offer.loss;
  value.lr_sum = offer.lr_sum;
  value.data_end = offer.data_end;
  return value;
}

WorkerProgress ProgressOf(const ProgressReport& report,
                          const CoordinatorPort::Traffic& traffic) {
  WorkerProgress progress;
  progress.round = report.round;
  progress.window_step = report.window_step;
  progress.inner_steps = report.inner_steps;
  progress.tokens = report.tokens;
  progress.loss = report.loss;
  progress.grad_norm = report.grad_norm;
  progress.lr = report.lr;
  progress.step_seconds = report.step_seconds;
  progress.train_seconds = report.train_seconds;
  progress.transfer_seconds = report.transfer_seconds;
  progress.wait_seconds = report.wait_seconds;
  progress.bytes_sent = report.earlier_bytes_sent + traffic.sent;
  progress.bytes_received = report.earlier_bytes_received + traffic.received;
  progress.skipped_steps = report.skipped_steps;
  progress.state = report.state;
  progress.unsent_steps = report.unsent_steps;
  progress.unsent_tokens = report.unsent_tokens;
  progress.version = report.version;
  for (const ProgressReport::FragmentProgress& other : report.others) {
    progress.others.push_back({other.round, other.window_step,
                               other.unsent_steps, other.unsent_tokens,
                               other.version, other.digest, other.fragment});
  }
  progress.digest = report.digest;
  if (report.probe.has_value()) {
    progress.probe = ProbeEvent{"",
                                report.probe->version,
                                report.probe->first_window,
                                report.probe->windows,
                                report.probe->loss_sum,
                                report.probe->tokens};
  }
  return progress;
}

UploadOutcome OutcomeOf(UploadVerdict::Kind kind, const std::string& reason) {
  switch (kind) {
    case UploadVerdict::Kind::kLate:
      return {UploadOutcome::Kind::kLate, reason};
    case UploadVerdict::Kind::kRefused:
      return {UploadOutcome::Kind::kRefused, reason};
    default:
      return {UploadOutcome::Kind::kAccepted, reason};
  }
}

std::vector<RemoteFile> FilesOf(const ResolveOutcome& outcome) {
  std::vector<RemoteFile> files;
  for (const VersionStore::Step& step : outcome.steps) {
    files.push_back({step.image, step.version, step.file.bytes,
                     step.file.digest, step.result_digest});
  }
  return files;
}

RunView ViewOf(const ViewOutcome& outcome,
               const std::optional<FileRef>& shard) {
  RunView view;
  view.fencing = outcome.fencing;
  view.revision = outcome.revision;
  view.phase = static_cast<RunView::Phase>(outcome.view.phase);
  for (const auto& fragment : outcome.fragments) {
    view.fragments.push_back({fragment.fragment, fragment.version,
                              fragment.digest, fragment.open_round});
  }
  for (const LeaseView& lease : outcome.view.leases) {
    view.leases.push_back(
        {lease.fragment, lease.round, lease.base_version, lease.base_digest,
         lease.lease.steps, lease.lease.progress, lease.lease.progress_step,
         lease.deadline_left, lease.delivered, lease.lease.window_steps,
         lease.last, lease.due_step, lease.round_steps});
  }
  for (const EvalView& eval : outcome.view.evals) {
    view.evals.push_back(EvalOf(eval, shard));
  }
  if (shard.has_value() && outcome.view.probe.has_value()) {
    view.probe = EvalOf(*outcome.view.probe, shard);
  }
  view.drain = outcome.view.drain;
  view.notice = outcome.view.notice;
  view.folded_tokens = outcome.folded_tokens;
  view.settings_revision = outcome.settings->revision;
  view.settings = outcome.settings->run;
  return view;
}

}  // namespace diloco

#include "coordinator/service/control_codec.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/rpc/message_codec.h"
#include "common/rpc/settings_codec.h"

namespace diloco {
namespace {

// Longest free text that is taken from a worker; the rest is cut.
constexpr size_t kMaxText = 256;
// More than any shard that is handed out holds.
constexpr uint64_t kMaxEvalTokens = uint64_t{1} << 32;

std::string PeerAddress(absl::string_view peer) {
  for (absl::string_view scheme : {"ipv4:", "ipv6:", "unix:"}) {
    if (absl::StartsWith(peer, scheme)) peer.remove_prefix(scheme.size());
  }
  return std::string(peer);
}

// At most kMaxText bytes, not cut inside a character.
std::string ShortText(const std::string& text) {
  if (text.size() <= kMaxText) return text;
  size_t end = kMaxText;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

uint64_t Milliseconds(absl::Duration duration) {
  return duration <= absl::ZeroDuration()
             ? 0
             : static_cast<uint64_t>(absl::ToInt64Milliseconds(duration));
}

void EncodeEval(const EvalView& eval, const FileRef& shard, v1::EvalView* to) {
  to->set_version(eval.version);
  to->set_slice(eval.slice);
  to->set_shard_digest(shard.digest.ToBytes());
  to->set_shard_bytes(shard.bytes);
  to->set_first_window(eval.first_window);
  to->set_windows(eval.windows);
  to->mutable_versions()->Add(eval.versions.begin(), eval.versions.end());
}

}  // namespace

absl::StatusOr<JoinEvent> DecodeJoin(const v1::JoinRequest& request,
                                     const std::string& peer) {
  RETURN_IF_ERROR(ValidateName("worker name", request.worker()));
  if (request.attempt().size() != kSessionBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("attempt must be ", kSessionBytes, " random bytes, got ",
                     request.attempt().size()));
  }
  if (!request.previous_session().empty() &&
      request.previous_session().size() != kSessionBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("previous_session must be empty or ", kSessionBytes,
                     " bytes, got ", request.previous_session().size()));
  }
  JoinEvent event;
  event.worker = request.worker();
  event.attempt = request.attempt();
  event.previous_session = request.previous_session();
  event.fresh = request.fresh();
  event.take_over = request.take_over();
  event.peer = PeerAddress(peer);
  return event;
}

ProtocolRange DecodeProtocol(const v1::ProtocolRange& range) {
  return {.min = range.min(),
          .max = range.max(),
          .features = {range.features().begin(), range.features().end()}};
}

void EncodeProtocol(const ProtocolRange& range, v1::ProtocolRange* out) {
  out->set_min(range.min);
  out->set_max(range.max);
  for (const std::string& feature : range.features) out->add_features(feature);
}

v1::Phase EncodePhase(RunPhase phase) {
  switch (phase) {
    case RunPhase::kWaiting:
      return v1::PHASE_WAITING;
    case RunPhase::kRunning:
      return v1::PHASE_RUNNING;
    case RunPhase::kPaused:
      return v1::PHASE_PAUSED;
    case RunPhase::kFinished:
      return v1::PHASE_FINISHED;
  }
  DILOCO_CHECK(false) << "phase " << static_cast<int>(phase);
  return v1::PHASE_UNSPECIFIED;
}

void EncodeView(const ViewOutcome& view,
                const std::optional<FileRef>& eval_shard, v1::RunView* out) {
  EncodeFencing(view.fencing, out->mutable_fencing());
  out->set_revision(view.revision);
  out->set_phase(EncodePhase(view.view.phase));
  for (const ViewOutcome::Fragment& fragment : view.fragments) {
    v1::FragmentView* to = out->add_fragments();
    to->set_fragment(fragment.fragment);
    to->set_version(fragment.version);
    to->set_digest(fragment.digest.ToBytes());
    to->set_open_round(fragment.open_round);
  }
  for (const LeaseView& lease : view.view.leases) {
    v1::LeaseView* to = out->add_leases();
    to->set_fragment(lease.fragment);
    to->set_round(lease.round);
    to->set_base_version(lease.base_version);
    to->set_base_digest(lease.base_digest.ToBytes());
    to->set_steps(lease.lease.steps);
    to->set_progress(lease.lease.progress);
    to->set_progress_step(lease.lease.progress_step);
    to->set_deadline_ms(Milliseconds(lease.deadline_left));
    to->set_delivered(lease.delivered);
    to->set_window_steps(lease.lease.window_steps);
    to->set_last(lease.last);
    to->set_due_step(lease.due_step);
    to->set_round_steps(lease.round_steps);
  }
  // Without a shard there is nothing to evaluate on.
  if (eval_shard.has_value()) {
    for (const EvalView& eval : view.view.evals) {
      EncodeEval(eval, *eval_shard, out->add_evals());
    }
  }
  if (eval_shard.has_value() && view.view.probe.has_value()) {
    EncodeEval(*view.view.probe, *eval_shard, out->mutable_probe());
  }
  out->set_drain(view.view.drain);
  out->set_notice(view.view.notice);
  out->set_folded_tokens(view.folded_tokens);
  out->set_settings_revision(view.settings->revision);
  EncodeRunSettings(view.settings->run, out->mutable_settings());
}

absl::StatusOr<WorkerProgress> DecodeProgress(
    const v1::ProgressReport& report) {
  WorkerProgress progress;
  progress.round = report.round();
  progress.window_step = report.window_step();
  progress.inner_steps = report.inner_steps();
  progress.tokens = report.tokens();
  progress.loss = report.loss();
  progress.grad_norm = report.grad_norm();
  progress.lr = report.lr();
  // Predictions are made from this; which values are believed, the core says.
  progress.step_seconds = report.step_seconds();
  progress.train_seconds = report.train_seconds();
  progress.transfer_seconds = report.transfer_seconds();
  progress.wait_seconds = report.wait_seconds();
  progress.bytes_sent = report.bytes_sent();
  progress.bytes_received = report.bytes_received();
  progress.skipped_steps = report.skipped_steps();
  progress.state = ShortText(report.state());
  progress.unsent_steps = report.unsent_steps();
  progress.unsent_tokens = report.unsent_tokens();
  progress.version = report.version();
  ASSIGN_OR_RETURN(progress.digest,
                   DecodeOptionalDigest("digest of the copy", report.digest()));
  for (const v1::FragmentProgress& other : report.others()) {
    WindowReport& window = progress.others.emplace_back();
    window.fragment = other.fragment();
    window.round = other.round();
    window.leased_steps = other.window_step();
    window.steps = other.unsent_steps();
    window.tokens = other.unsent_tokens();
    window.version = other.version();
    ASSIGN_OR_RETURN(window.digest, DecodeOptionalDigest("digest of a fragment",
                                                         other.digest()));
  }
  if (report.has_probe()) {
    const v1::ProbeReport& in = report.probe();
    if (in.tokens() > kMaxEvalTokens) {
      return absl::InvalidArgumentError(
          absl::StrCat("probe of version ", in.version(), ": expected at most ",
                       kMaxEvalTokens, " tokens, got ", in.tokens()));
    }
    ProbeEvent& probe = progress.probe.emplace();
    probe.version = in.version();
    probe.first_window = in.first_window();
    probe.windows = in.windows();
    probe.loss_sum = in.loss_sum();
    probe.tokens = in.tokens();
  }
  return progress;
}

void EncodeProgress(const WorkerProgress& progress, v1::ProgressReport* out) {
  out->set_round(progress.round);
  out->set_window_step(progress.window_step);
  out->set_inner_steps(progress.inner_steps);
  out->set_tokens(progress.tokens);
  out->set_loss(progress.loss);
  out->set_grad_norm(progress.grad_norm);
  out->set_lr(progress.lr);
  out->set_step_seconds(progress.step_seconds);
  out->set_train_seconds(progress.train_seconds);
  out->set_transfer_seconds(progress.transfer_seconds);
  out->set_wait_seconds(progress.wait_seconds);
  out->set_bytes_sent(progress.bytes_sent);
  out->set_bytes_received(progress.bytes_received);
  out->set_skipped_steps(progress.skipped_steps);
  out->set_state(progress.state);
  out->set_unsent_steps(progress.unsent_steps);
  out->set_unsent_tokens(progress.unsent_tokens);
  out->set_version(progress.version);
  if (progress.digest.has_value()) out->set_digest(progress.digest->ToBytes());
  for (const WindowReport& window : progress.others) {
    v1::FragmentProgress* to = out->add_others();
    to->set_fragment(window.fragment);
    to->set_round(window.round);
    to->set_window_step(window.leased_steps);
    to->set_unsent_steps(window.steps);
    to->set_unsent_tokens(window.tokens);
    to->set_version(window.version);
    if (window.digest.has_value()) to->set_digest(window.digest->ToBytes());
  }
}

void EncodeStep(const VersionStore::Step& step, v1::FileRef* out) {
  out->set_kind(step.image ? v1::FILE_KIND_IMAGE : v1::FILE_KIND_UPDATE);
  out->set_version(step.version);
  out->set_bytes(step.file.bytes);
  out->set_digest(step.file.digest.ToBytes());
  out->set_result_digest(step.result_digest.ToBytes());
}

void EncodeResolve(const ResolveOutcome& outcome, v1::ResolveResponse* out) {
  EncodeFencing(outcome.fencing, out->mutable_fencing());
  out->set_version(outcome.version);
  for (const VersionStore::Step& step : outcome.steps) {
    EncodeStep(step, out->add_files());
  }
}

absl::StatusOr<EvalReportEvent> DecodeEvalReport(const v1::EvalReport& report) {
  // The sum may be no number: that a model has diverged is worth reporting.
  if (report.tokens() == 0 || report.tokens() > kMaxEvalTokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "evaluation of version ", report.version(), " slice ", report.slice(),
        ": expected 1 to ", kMaxEvalTokens, " tokens, got ", report.tokens()));
  }
  EvalReportEvent event;
  event.version = report.version();
  event.slice = report.slice();
  event.loss_sum = report.loss_sum();
  event.tokens = report.tokens();
  return event;
}

}  // namespace diloco

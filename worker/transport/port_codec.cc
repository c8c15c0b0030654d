#include "worker/transport/port_codec.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/rpc/message_codec.h"
#include "common/rpc/protocol.h"
#include "common/rpc/settings_codec.h"

namespace diloco {
namespace {

absl::StatusOr<RunView::Phase> DecodePhase(v1::Phase phase) {
  switch (phase) {
    case v1::PHASE_WAITING:
      return RunView::Phase::kWaiting;
    case v1::PHASE_RUNNING:
      return RunView::Phase::kRunning;
    case v1::PHASE_PAUSED:
      return RunView::Phase::kPaused;
    case v1::PHASE_FINISHED:
      return RunView::Phase::kFinished;
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "the coordinator is in phase ", static_cast<int>(phase),
          ", which this build does not know; update this program"));
  }
}

absl::StatusOr<RunView::Lease> DecodeLease(const v1::LeaseView& in) {
  RunView::Lease lease;
  lease.fragment = in.fragment();
  lease.round = in.round();
  lease.base_version = in.base_version();
  ASSIGN_OR_RETURN(lease.base_digest,
                   DecodeDigest("base digest of a lease", in.base_digest()));
  lease.steps = in.steps();
  lease.progress = in.progress();
  lease.progress_step = in.progress_step();
  lease.deadline_left = absl::Milliseconds(in.deadline_ms());
  lease.delivered = in.delivered();
  lease.window_steps = in.window_steps();
  lease.last = in.last();
  lease.due_step = in.due_step();
  lease.round_steps = in.round_steps();
  return lease;
}

absl::StatusOr<RunView::Eval> DecodeEval(const v1::EvalView& in) {
  RunView::Eval eval;
  eval.version = in.version();
  eval.slice = in.slice();
  ASSIGN_OR_RETURN(eval.shard_digest,
                   DecodeDigest("evaluation shard", in.shard_digest()));
  eval.shard_bytes = in.shard_bytes();
  eval.first_window = in.first_window();
  eval.windows = in.windows();
  eval.versions.assign(in.versions().begin(), in.versions().end());
  return eval;
}

}  // namespace

void EncodeJoin(const JoinCall& call, v1::JoinRequest* out) {
  out->set_run(call.run);
  out->set_worker(call.worker);
  out->set_attempt(call.attempt);
  out->set_previous_session(call.previous_session);
  const ProtocolRange ours = OurProtocol();
  out->mutable_protocol()->set_min(ours.min);
  out->mutable_protocol()->set_max(ours.max);
  for (const std::string& feature : ours.features) {
    out->mutable_protocol()->add_features(feature);
  }
  EncodeFencing(call.last_seen, out->mutable_last_seen());
  if (call.settings_digest.has_value()) {
    out->set_settings_digest(call.settings_digest->ToBytes());
  }
  out->set_fresh(call.fresh);
  out->set_build(BuildVersion());
  out->set_data_tokens(call.data_tokens);
  out->set_max_token(call.max_token);
  out->set_take_over(call.take_over);
}

absl::StatusOr<JoinReply> DecodeJoinReply(const v1::JoinResponse& in) {
  RETURN_IF_ERROR(AgreeOnProtocol(OurProtocol(),
                                  {.min = in.protocol().min(),
                                   .max = in.protocol().max(),
                                   .features = {}},
                                  "the coordinator", in.build())
                      .status());
  JoinReply reply;
  ASSIGN_OR_RETURN(reply.fencing, DecodeFencing(in.fencing()));
  if (in.session().size() != kSessionBytes || in.lease_ms() == 0 ||
      in.beat_ms() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the reply to Join has a session of ", in.session().size(),
                     " bytes, a lease of ", in.lease_ms(), " ms and beats of ",
                     in.beat_ms(), " ms"));
  }
  reply.session = in.session();
  ASSIGN_OR_RETURN(reply.settings, DecodeRunSettings(in.settings()));
  ASSIGN_OR_RETURN(reply.settings_digest,
                   DecodeDigest("settings digest", in.settings_digest()));
  reply.lease = absl::Milliseconds(in.lease_ms());
  reply.beat_every = absl::Milliseconds(in.beat_ms());
  reply.settings_revision = in.settings_revision();
  reply.data_end = in.data_end();
  return reply;
}

absl::StatusOr<RunView> DecodeView(const v1::RunView& in) {
  RunView view;
  ASSIGN_OR_RETURN(view.fencing, DecodeFencing(in.fencing()));
  view.revision = in.revision();
  ASSIGN_OR_RETURN(view.phase, DecodePhase(in.phase()));
  for (const v1::FragmentView& from : in.fragments()) {
    RunView::Fragment fragment;
    fragment.fragment = from.fragment();
    fragment.version = from.version();
    ASSIGN_OR_RETURN(fragment.digest,
                     DecodeDigest("digest of a fragment", from.digest()));
    fragment.open_round = from.open_round();
    view.fragments.push_back(fragment);
  }
  for (const v1::LeaseView& from : in.leases()) {
    ASSIGN_OR_RETURN(RunView::Lease lease, DecodeLease(from));
    view.leases.push_back(lease);
  }
  for (const v1::EvalView& from : in.evals()) {
    ASSIGN_OR_RETURN(const RunView::Eval eval, DecodeEval(from));
    view.evals.push_back(eval);
  }
  if (in.has_probe()) {
    ASSIGN_OR_RETURN(view.probe, DecodeEval(in.probe()));
  }
  view.drain = in.drain();
  view.notice = in.notice();
  view.folded_tokens = in.folded_tokens();
  view.settings_revision = in.settings_revision();
  ASSIGN_OR_RETURN(view.settings, DecodeRunSettings(in.settings()));
  return view;
}

void EncodeReport(const ProgressReport& report,
                  const CoordinatorPort::Traffic& traffic,
                  v1::ProgressReport* out) {
  out->set_round(report.round);
  out->set_window_step(report.window_step);
  out->set_inner_steps(report.inner_steps);
  out->set_tokens(report.tokens);
  out->set_loss(report.loss);
  out->set_grad_norm(report.grad_norm);
  out->set_lr(report.lr);
  out->set_step_seconds(report.step_seconds);
  out->set_train_seconds(report.train_seconds);
  out->set_transfer_seconds(report.transfer_seconds);
  out->set_wait_seconds(report.wait_seconds);
  out->set_bytes_sent(report.earlier_bytes_sent + traffic.sent);
  out->set_bytes_received(report.earlier_bytes_received + traffic.received);
  out->set_skipped_steps(report.skipped_steps);
  out->set_state(report.state);
  out->set_unsent_steps(report.unsent_steps);
  out->set_unsent_tokens(report.unsent_tokens);
  out->set_version(report.version);
  if (report.digest.has_value()) out->set_digest(report.digest->ToBytes());
  if (report.probe.has_value()) {
    v1::ProbeReport* probe = out->mutable_probe();
    probe->set_version(report.probe->version);
    probe->set_first_window(report.probe->first_window);
    probe->set_windows(report.probe->windows);
    probe->set_loss_sum(report.probe->loss_sum);
    probe->set_tokens(report.probe->tokens);
  }
  for (const ProgressReport::FragmentProgress& other : report.others) {
    v1::FragmentProgress* to = out->add_others();
    to->set_fragment(other.fragment);
    to->set_round(other.round);
    to->set_window_step(other.window_step);
    to->set_unsent_steps(other.unsent_steps);
    to->set_unsent_tokens(other.unsent_tokens);
    to->set_version(other.version);
    if (other.digest.has_value()) to->set_digest(other.digest->ToBytes());
  }
}

absl::StatusOr<std::vector<RemoteFile>> DecodeFiles(
    const v1::ResolveResponse& response) {
  std::vector<RemoteFile> files;
  for (const v1::FileRef& from : response.files()) {
    RemoteFile file;
    switch (from.kind()) {
      case v1::FILE_KIND_IMAGE:
        file.image = true;
        break;
      case v1::FILE_KIND_UPDATE:
        file.image = false;
        break;
      default:
        return absl::InvalidArgumentError(absl::StrCat(
            "the coordinator names a file of kind ",
            static_cast<int>(from.kind()),
            ", which this build does not know; update this program"));
    }
    file.version = from.version();
    file.bytes = from.bytes();
    ASSIGN_OR_RETURN(file.digest,
                     DecodeDigest("digest of a file", from.digest()));
    ASSIGN_OR_RETURN(file.result_digest,
                     DecodeDigest("digest of a version", from.result_digest()));
    files.push_back(file);
  }
  return files;
}

void EncodeOffer(const UpdateOffer& offer, const std::string& run,
                 v1::UpdateKey* key, v1::UpdateValue* value) {
  key->set_run(run);
  key->set_fragment(offer.fragment);
  key->set_round(offer.round);
  value->set_base_version(offer.base_version);
  value->set_base_digest(offer.base_digest.ToBytes());
  value->set_bytes(offer.bytes);
  value->set_digest(offer.digest.ToBytes());
  value->set_codec(CodecName(offer.codec));
  value->set_tokens(offer.tokens);
  value->set_steps(offer.steps);
  value->set_loss(offer.loss);
  value->set_lr_sum(offer.lr_sum);
  value->set_data_end(offer.data_end);
}

}  // namespace diloco

#include "coordinator/service/control_service.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "common/base/version.h"
#include "common/rpc/channel.h"
#include "common/rpc/message_codec.h"
#include "common/rpc/protocol.h"
#include "common/rpc/settings_codec.h"
#include "coordinator/service/control_codec.h"

namespace diloco {
namespace {

// Beats per interval after which silence makes a worker suspect: one may get
// lost.
constexpr double kBeatsBeforeSuspect = 2.5;

// What Join compares before the state machine sees the request. The text names
// both sides of a difference.
absl::Status CheckJoin(const v1::JoinRequest& request,
                       const CoordinatorOptions& options) {
  RETURN_IF_ERROR(AgreeOnProtocol(OurProtocol(),
                                  DecodeProtocol(request.protocol()),
                                  absl::StrCat("worker ", request.worker()),
                                  request.build())
                      .status());
  if (!request.run().empty() && request.run() != options.run) {
    return absl::FailedPreconditionError(absl::StrCat(
        "worker ", request.worker(), " is set to run \"",
        absl::CHexEscape(request.run()), "\", this coordinator has run \"",
        options.run, "\"; change `run` in the worker's file or its address"));
  }
  const int64_t vocab = options.settings.model.vocab;
  if (static_cast<int64_t>(request.max_token()) >= vocab) {
    return absl::InvalidArgumentError(
        absl::StrCat("the shard of worker ", request.worker(), " has token id ",
                     request.max_token(), ", the model's vocabulary is ", vocab,
                     "; it was made with another tokenizer: tokenize the text "
                     "again with the run's"));
  }
  return absl::OkStatus();
}

void EncodeJoined(const JoinOutcome& outcome, v1::JoinResponse* out) {
  const Policy& policy = outcome.settings->policy;
  EncodeFencing(outcome.fencing, out->mutable_fencing());
  out->set_session(outcome.session);
  EncodeRunSettings(outcome.settings->run, out->mutable_settings());
  out->set_settings_revision(outcome.settings->revision);
  out->set_settings_digest(outcome.settings_digest.ToBytes());
  out->set_lease_ms(
      static_cast<uint64_t>(absl::ToInt64Milliseconds(policy.lease)));
  out->set_beat_ms(static_cast<uint64_t>(
      absl::ToInt64Milliseconds(policy.suspect_after / kBeatsBeforeSuspect)));
  out->set_data_end(outcome.data_end);
  EncodeProtocol(OurProtocol(), out->mutable_protocol());
  out->set_build(BuildVersion());
}

// For calls that are answered with a status and our fencing.
template <typename Response>
std::function<void(absl::Status)> AnswerStatus(std::shared_ptr<UnaryCall> call,
                                               Coordinator* coordinator,
                                               Response* response) {
  return [call = std::move(call), coordinator, response](absl::Status status) {
    call->Finish([&] {
      EncodeFencing(coordinator->fencing(), response->mutable_fencing());
      return status;
    });
  };
}

}  // namespace

grpc::ServerUnaryReactor* ControlService::Join(
    grpc::CallbackServerContext* context, const v1::JoinRequest* request,
    v1::JoinResponse* response) {
  return HandleUnary(
      context_, "Join", *request, kJoinRequest,
      [&](const std::shared_ptr<UnaryCall>& call) -> absl::Status {
        Coordinator* const coordinator = context_.coordinator;
        ASSIGN_OR_RETURN(JoinEvent event,
                         DecodeJoin(*request, context->peer()));
        RETURN_IF_ERROR(CheckJoin(*request, coordinator->options()));
        ASSIGN_OR_RETURN(Fencing last_seen,
                         DecodeFencing(request->last_seen()));
        ASSIGN_OR_RETURN(std::optional<Digest> settings_digest,
                         DecodeOptionalDigest("settings digest",
                                              request->settings_digest()));
        coordinator->Join(
            std::move(event), std::move(last_seen), settings_digest,
            Answer<JoinOutcome>(call, [response](const JoinOutcome& outcome) {
              EncodeJoined(outcome, response);
            }));
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* ControlService::Watch(grpc::CallbackServerContext*,
                                                const v1::WatchRequest* request,
                                                v1::RunView* response) {
  return HandleUnary(
      context_, "Watch", *request, kSmallRequest,
      [&](const std::shared_ptr<UnaryCall>& call) -> absl::Status {
        Coordinator* const coordinator = context_.coordinator;
        ASSIGN_OR_RETURN(Fencing fencing, DecodeFencing(request->fencing()));
        const absl::Duration max_wait =
            std::min(absl::Milliseconds(request->max_wait_ms()), kMaxLongPoll);
        coordinator->Watch(request->session(), std::move(fencing),
                           request->known_revision(), max_wait,
                           Answer<ViewOutcome>(call, [coordinator, response](
                                                         const ViewOutcome& v) {
                             EncodeView(v, coordinator->eval_shard(), response);
                           }));
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* ControlService::ReportProgress(
    grpc::CallbackServerContext*, const v1::ProgressReport* request,
    v1::ProgressReply* response) {
  return HandleUnary(
      context_, "ReportProgress", *request, kBeatRequest,
      [&](const std::shared_ptr<UnaryCall>& call) -> absl::Status {
        Coordinator* const coordinator = context_.coordinator;
        ASSIGN_OR_RETURN(Fencing fencing, DecodeFencing(request->fencing()));
        ASSIGN_OR_RETURN(WorkerProgress progress, DecodeProgress(*request));
        coordinator->Beat(
            request->session(), std::move(fencing), std::move(progress),
            Answer<uint64_t>(call, [coordinator, response](uint64_t revision) {
              EncodeFencing(coordinator->fencing(),
                            response->mutable_fencing());
              response->set_revision(revision);
            }));
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* ControlService::ResolveFragment(
    grpc::CallbackServerContext*, const v1::ResolveRequest* request,
    v1::ResolveResponse* response) {
  return HandleUnary(
      context_, "ResolveFragment", *request, kSmallRequest,
      [&](const std::shared_ptr<UnaryCall>& call) -> absl::Status {
        ASSIGN_OR_RETURN(Fencing fencing, DecodeFencing(request->fencing()));
        std::optional<uint64_t> have;
        if (request->has_have_version()) have = request->have_version();
        context_.coordinator->Resolve(
            request->session(), std::move(fencing), request->fragment(), have,
            Answer<ResolveOutcome>(call, [response](const ResolveOutcome& r) {
              EncodeResolve(r, response);
            }));
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* ControlService::ReportEval(
    grpc::CallbackServerContext*, const v1::EvalReport* request,
    v1::EvalReply* response) {
  return HandleUnary(
      context_, "ReportEval", *request, kSmallRequest,
      [&](const std::shared_ptr<UnaryCall>& call) -> absl::Status {
        Coordinator* const coordinator = context_.coordinator;
        ASSIGN_OR_RETURN(Fencing fencing, DecodeFencing(request->fencing()));
        ASSIGN_OR_RETURN(EvalReportEvent event, DecodeEvalReport(*request));
        coordinator->ReportEval(request->session(), std::move(fencing),
                                std::move(event),
                                AnswerStatus(call, coordinator, response));
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* ControlService::Leave(grpc::CallbackServerContext*,
                                                const v1::LeaveRequest* request,
                                                v1::LeaveResponse* response) {
  return HandleUnary(
      context_, "Leave", *request, kSmallRequest,
      [&](const std::shared_ptr<UnaryCall>& call) -> absl::Status {
        Coordinator* const coordinator = context_.coordinator;
        ASSIGN_OR_RETURN(Fencing fencing, DecodeFencing(request->fencing()));
        coordinator->Leave(request->session(), std::move(fencing),
                           request->reason(),
                           AnswerStatus(call, coordinator, response));
        return absl::OkStatus();
      });
}

}  // namespace diloco

#include "coordinator/service/admin_service.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/message_codec.h"
#include "coordinator/service/admin_codec.h"

namespace diloco {
namespace {

// Room for one more event below the 4 MiB that a client takes.
constexpr size_t kMaxEventsBytes = 3 << 20;

// Collects what an export needs, one question to the coordinator after the
// other, and answers the call at the end or at the first error.
class ExportGatherer : public std::enable_shared_from_this<ExportGatherer> {
 public:
  ExportGatherer(Coordinator* coordinator, std::shared_ptr<UnaryCall> call,
                 v1::ExportDescription* response)
      : coordinator_(coordinator),
        call_(std::move(call)),
        response_(response) {}

  void Start() {
    coordinator_->GetStatus(
        [self = shared_from_this()](absl::StatusOr<StatusReport> status) {
          if (!status.ok()) return self->call_->Finish(status.status());
          self->status_ = *std::move(status);
          self->Next();
        });
  }

 private:
  void Next() {
    if (fragments_.size() == status_.fragments.size()) {
      return call_->Finish([this] {
        EncodeExport(coordinator_->options(), status_, fragments_,
                     coordinator_->tokenizer_files(), response_);
        return absl::OkStatus();
      });
    }
    coordinator_->ResolveForExport(
        static_cast<uint32_t>(fragments_.size()),
        [self = shared_from_this()](absl::StatusOr<ResolveOutcome> outcome) {
          if (!outcome.ok()) return self->call_->Finish(outcome.status());
          self->fragments_.push_back(*std::move(outcome));
          self->Next();
        });
  }

  Coordinator* const coordinator_;
  const std::shared_ptr<UnaryCall> call_;
  v1::ExportDescription* const response_;
  StatusReport status_;
  std::vector<ResolveOutcome> fragments_;
};

}  // namespace

grpc::ServerUnaryReactor* AdminService::GetStatus(
    grpc::CallbackServerContext*, const v1::StatusRequest* request,
    v1::StatusResponse* response) {
  return HandleUnary(context_, "GetStatus", *request, kSmallRequest,
                     [&](const std::shared_ptr<UnaryCall>& call) {
                       Coordinator* const coordinator = context_.coordinator;
                       coordinator->GetStatus(Answer<StatusReport>(
                           call, [response](const StatusReport& report) {
                             EncodeStatus(report, response);
                           }));
                       return absl::OkStatus();
                     });
}

grpc::ServerUnaryReactor* AdminService::GetEvents(
    grpc::CallbackServerContext*, const v1::EventsRequest* request,
    v1::EventsResponse* response) {
  return HandleUnary(
      context_, "GetEvents", *request, kSmallRequest,
      [&](const std::shared_ptr<UnaryCall>& call) {
        Coordinator* const coordinator = context_.coordinator;
        const absl::Duration max_wait =
            std::min(absl::Milliseconds(request->max_wait_ms()), kMaxLongPoll);
        coordinator->GetEvents(
            request->after_sequence(), max_wait,
            Answer<EventsOutcome>(
                call, [response](const EventsOutcome& outcome) {
                  EncodeEvents(outcome, kMaxEventsBytes, response);
                }));
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* AdminService::Change(
    const char* method, const google::protobuf::MessageLite& request,
    Event event, std::string message, v1::AdminReply* response) {
  return HandleUnary(
      context_, method, request, kSmallRequest,
      [&](const std::shared_ptr<UnaryCall>& call) {
        Coordinator* const coordinator = context_.coordinator;
        coordinator->Admin(
            std::move(event),
            [call, coordinator, response, message](const absl::Status& status) {
              call->Finish([&] {
                EncodeFencing(coordinator->fencing(),
                              response->mutable_fencing());
                response->set_message(message);
                return status;
              });
            });
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* AdminService::SetPaused(
    grpc::CallbackServerContext*, const v1::SetPausedRequest* request,
    v1::AdminReply* response) {
  return Change(
      "SetPaused", *request,
      PauseEvent{.paused = request->paused(), .reason = request->reason()},
      request->paused() ? "paused: no round opens until resume" : "resumed",
      response);
}

grpc::ServerUnaryReactor* AdminService::StopRun(
    grpc::CallbackServerContext*, const v1::StopRunRequest* request,
    v1::AdminReply* response) {
  StopEvent event{.after_round = std::nullopt, .reason = request->reason()};
  std::string message = "the run ends after the current round";
  if (request->has_after_round()) {
    event.after_round = request->after_round();
    message = absl::StrCat("the run ends after round ", request->after_round());
  }
  return Change("StopRun", *request, std::move(event), std::move(message),
                response);
}

grpc::ServerUnaryReactor* AdminService::DrainWorker(
    grpc::CallbackServerContext*, const v1::WorkerRequest* request,
    v1::AdminReply* response) {
  return Change("DrainWorker", *request,
                DrainEvent{.worker = request->worker()},
                absl::StrCat("worker ", request->worker(),
                             " finishes its window and leaves"),
                response);
}

grpc::ServerUnaryReactor* AdminService::EvictWorker(
    grpc::CallbackServerContext*, const v1::WorkerRequest* request,
    v1::AdminReply* response) {
  return Change(
      "EvictWorker", *request,
      EvictEvent{.worker = request->worker(), .reason = request->reason()},
      absl::StrCat("worker ", request->worker(),
                   " is out and may not join again"),
      response);
}

grpc::ServerUnaryReactor* AdminService::ChangeSettings(
    grpc::CallbackServerContext* context,
    const v1::ChangeSettingsRequest* request, v1::AdminReply* response) {
  return HandleUnary(
      context_, "ChangeSettings", *request, kSmallRequest,
      [&](const std::shared_ptr<UnaryCall>& call) -> absl::Status {
        ASSIGN_OR_RETURN(SettingsChange change,
                         DecodeSettingsChange(*request, context->peer()));
        Coordinator* const coordinator = context_.coordinator;
        coordinator->ChangeSettings(
            std::move(change),
            Answer<SettingsChanged>(
                call, [coordinator, response](const SettingsChanged& changed) {
                  EncodeFencing(coordinator->fencing(),
                                response->mutable_fencing());
                  response->set_message(SettingsMessage(changed));
                }));
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* AdminService::GetSettings(
    grpc::CallbackServerContext*, const v1::SettingsRequest* request,
    v1::SettingsResponse* response) {
  return HandleUnary(context_, "GetSettings", *request, kSmallRequest,
                     [&](const std::shared_ptr<UnaryCall>& call) {
                       context_.coordinator->GetSettings(Answer<SettingsReport>(
                           call, [response](const SettingsReport& report) {
                             EncodeSettings(report, response);
                           }));
                       return absl::OkStatus();
                     });
}

grpc::ServerUnaryReactor* AdminService::DescribeExport(
    grpc::CallbackServerContext*, const v1::ExportRequest* request,
    v1::ExportDescription* response) {
  return HandleUnary(context_, "DescribeExport", *request, kSmallRequest,
                     [&](const std::shared_ptr<UnaryCall>& call) {
                       std::make_shared<ExportGatherer>(context_.coordinator,
                                                        call, response)
                           ->Start();
                       return absl::OkStatus();
                     });
}

}  // namespace diloco

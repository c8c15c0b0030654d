#include "coordinator/cli/client.h"

#include <grpcpp/client_context.h>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_codec.h"

namespace diloco {
namespace {

absl::Status FromGrpc(const grpc::Status& status,
                      const std::string& coordinator) {
  if (status.ok()) return absl::OkStatus();
  const absl::Status error = FromGrpcStatus(status);
  if (absl::IsUnavailable(error)) {
    return absl::Status(error.code(),
                        absl::StrCat("coordinator ", coordinator,
                                     " cannot be reached (", error.message(),
                                     "); is it running? Give its address with "
                                     "--coordinator HOST:PORT"));
  }
  if (absl::IsDeadlineExceeded(error)) {
    return absl::Status(
        error.code(),
        absl::StrCat("coordinator ", coordinator, " did not answer in time (",
                     error.message(),
                     "); it may be waiting for its disk, which `dilococtl "
                     "status` and its /readyz tell, or out of reach"));
  }
  return WithContext(error, absl::StrCat("coordinator ", coordinator));
}

// Calls `method` of the stub with a deadline.
template <typename Request, typename Response>
absl::StatusOr<Response> Call(
    v1::Admin::Stub* stub, const std::string& coordinator,
    grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*,
                                            const Request&, Response*),
    const Request& request, absl::Duration deadline = kControlDeadline) {
  grpc::ClientContext context;
  SetTimeout(&context, deadline);
  Response response;
  const grpc::Status status = (stub->*method)(&context, request, &response);
  if (!status.ok()) return FromGrpc(status, coordinator);
  return response;
}

v1::WorkerRequest MakeWorkerRequest(const std::string& worker,
                                    const std::string& reason) {
  v1::WorkerRequest request;
  request.set_worker(worker);
  request.set_reason(reason);
  return request;
}

}  // namespace

AdminClient::AdminClient(const std::string& coordinator)
    : coordinator_(coordinator),
      channel_(MakeChannel(coordinator, ChannelKind::kControl)),
      stub_(v1::Admin::NewStub(channel_)) {}

absl::StatusOr<v1::StatusResponse> AdminClient::GetStatus() {
  return Call(stub_.get(), coordinator_, &v1::Admin::Stub::GetStatus,
              v1::StatusRequest());
}

absl::StatusOr<v1::EventsResponse> AdminClient::GetEvents(
    uint64_t after_sequence, absl::Duration max_wait) {
  v1::EventsRequest request;
  request.set_after_sequence(after_sequence);
  request.set_max_wait_ms(absl::ToInt64Milliseconds(max_wait));
  return Call(stub_.get(), coordinator_, &v1::Admin::Stub::GetEvents, request,
              max_wait + kControlDeadline);
}

absl::StatusOr<v1::AdminReply> AdminClient::SetPaused(
    bool paused, const std::string& reason) {
  v1::SetPausedRequest request;
  request.set_paused(paused);
  request.set_reason(reason);
  return Call(stub_.get(), coordinator_, &v1::Admin::Stub::SetPaused, request);
}

absl::StatusOr<v1::AdminReply> AdminClient::StopRun(
    const v1::StopRunRequest& request) {
  return Call(stub_.get(), coordinator_, &v1::Admin::Stub::StopRun, request);
}

absl::StatusOr<v1::AdminReply> AdminClient::DrainWorker(
    const std::string& worker, const std::string& reason) {
  return Call(stub_.get(), coordinator_, &v1::Admin::Stub::DrainWorker,
              MakeWorkerRequest(worker, reason));
}

absl::StatusOr<v1::AdminReply> AdminClient::EvictWorker(
    const std::string& worker, const std::string& reason) {
  return Call(stub_.get(), coordinator_, &v1::Admin::Stub::EvictWorker,
              MakeWorkerRequest(worker, reason));
}

absl::StatusOr<v1::AdminReply> AdminClient::ChangeSettings(
    const v1::ChangeSettingsRequest& request) {
  return Call(stub_.get(), coordinator_, &v1::Admin::Stub::ChangeSettings,
              request);
}

absl::StatusOr<v1::SettingsResponse> AdminClient::GetSettings() {
  return Call(stub_.get(), coordinator_, &v1::Admin::Stub::GetSettings,
              v1::SettingsRequest());
}

absl::StatusOr<v1::ExportDescription> AdminClient::DescribeExport() {
  return Call(stub_.get(), coordinator_, &v1::Admin::Stub::DescribeExport,
              v1::ExportRequest());
}

}  // namespace diloco

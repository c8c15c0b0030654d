// The operator's plane over gRPC, used by dilococtl.
#ifndef COORDINATOR_SERVICE_ADMIN_SERVICE_H_
#define COORDINATOR_SERVICE_ADMIN_SERVICE_H_

#include "coordinator/service/handler.h"
#include "diloco/v1/admin.grpc.pb.h"

namespace diloco {

class AdminService final : public v1::Admin::CallbackService {
 public:
  explicit AdminService(ServiceContext context) : context_(context) {}

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::StatusRequest* request,
                                      v1::StatusResponse* response) override;
  grpc::ServerUnaryReactor* GetEvents(grpc::CallbackServerContext* context,
                                      const v1::EventsRequest* request,
                                      v1::EventsResponse* response) override;
  grpc::ServerUnaryReactor* SetPaused(grpc::CallbackServerContext* context,
                                      const v1::SetPausedRequest* request,
                                      v1::AdminReply* response) override;
  grpc::ServerUnaryReactor* StopRun(grpc::CallbackServerContext* context,
                                    const v1::StopRunRequest* request,
                                    v1::AdminReply* response) override;
  grpc::ServerUnaryReactor* DrainWorker(grpc::CallbackServerContext* context,
                                        const v1::WorkerRequest* request,
                                        v1::AdminReply* response) override;
  grpc::ServerUnaryReactor* EvictWorker(grpc::CallbackServerContext* context,
                                        const v1::WorkerRequest* request,
                                        v1::AdminReply* response) override;
  grpc::ServerUnaryReactor* ChangeSettings(
      grpc::CallbackServerContext* context,
      const v1::ChangeSettingsRequest* request,
      v1::AdminReply* response) override;
  grpc::ServerUnaryReactor* GetSettings(
      grpc::CallbackServerContext* context, const v1::SettingsRequest* request,
      v1::SettingsResponse* response) override;
  grpc::ServerUnaryReactor* DescribeExport(
      grpc::CallbackServerContext* context, const v1::ExportRequest* request,
      v1::ExportDescription* response) override;

 private:
  // Hands `event` to the coordinator; success is answered with `message`.
  grpc::ServerUnaryReactor* Change(const char* method,
                                   const google::protobuf::MessageLite& request,
                                   Event event, std::string message,
                                   v1::AdminReply* response);

  const ServiceContext context_;
};

}  // namespace diloco

#endif  // COORDINATOR_SERVICE_ADMIN_SERVICE_H_

// The control plane over gRPC: decodes, asks the coordinator, encodes its
// answer when it comes. Holds no state of its own.
#ifndef COORDINATOR_SERVICE_CONTROL_SERVICE_H_
#define COORDINATOR_SERVICE_CONTROL_SERVICE_H_

#include "coordinator/service/handler.h"
#include "diloco/v1/control.grpc.pb.h"

namespace diloco {

class ControlService final : public v1::Control::CallbackService {
 public:
  explicit ControlService(ServiceContext context) : context_(context) {}

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const v1::JoinRequest* request,
                                 v1::JoinResponse* response) override;
  grpc::ServerUnaryReactor* Watch(grpc::CallbackServerContext* context,
                                  const v1::WatchRequest* request,
                                  v1::RunView* response) override;
  grpc::ServerUnaryReactor* ReportProgress(
      grpc::CallbackServerContext* context, const v1::ProgressReport* request,
      v1::ProgressReply* response) override;
  grpc::ServerUnaryReactor* ResolveFragment(
      grpc::CallbackServerContext* context, const v1::ResolveRequest* request,
      v1::ResolveResponse* response) override;
  grpc::ServerUnaryReactor* ReportEval(grpc::CallbackServerContext* context,
                                       const v1::EvalReport* request,
                                       v1::EvalReply* response) override;
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const v1::LeaveRequest* request,
                                  v1::LeaveResponse* response) override;

 private:
  const ServiceContext context_;
};

}  // namespace diloco

#endif  // COORDINATOR_SERVICE_CONTROL_SERVICE_H_

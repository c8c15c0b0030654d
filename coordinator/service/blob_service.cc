#include "coordinator/service/blob_service.h"

#include <utility>

#include "common/rpc/message_codec.h"
#include "coordinator/service/blob_codec.h"
#include "coordinator/service/blob_read.h"
#include "coordinator/service/blob_write.h"

namespace diloco {
namespace {

// Runs `work` on the executor; what it returns is finished with `fill`, which
// encodes.
template <typename T, typename Work, typename Fill>
absl::Status OnDisk(const ServiceContext& context,
                    const std::shared_ptr<UnaryCall>& call, Work work,
                    Fill fill) {
  return context.disk->Run(
      [call, work = std::move(work), fill = std::move(fill)] {
        Answer<T>(call, fill)(work());
      });
}

}  // namespace

grpc::ServerUnaryReactor* BlobService::BeginUpload(
    grpc::CallbackServerContext*, const v1::BeginUploadRequest* request,
    v1::BeginUploadResponse* response) {
  return HandleUnary(
      context_, "BeginUpload", *request, kSmallRequest,
      [&](const std::shared_ptr<UnaryCall>& call) -> absl::Status {
        Coordinator* const coordinator = context_.coordinator;
        RETURN_IF_ERROR(CheckRun(request->key().run(), *coordinator));
        ASSIGN_OR_RETURN(Fencing fencing, DecodeFencing(request->fencing()));
        ASSIGN_OR_RETURN(UpdateValue value,
                         DecodeUpdateValue(request->value()));
        return OnDisk<BeginOutcome>(
            context_, call,
            [coordinator, copy = *request, fencing, value] {
              return coordinator->BeginUpload(copy.session(), fencing,
                                              copy.key().fragment(),
                                              copy.key().round(), value);
            },
            [coordinator, order = context_.order, request,
             response](const BeginOutcome& outcome) {
              EncodeFencing(coordinator->fencing(),
                            response->mutable_fencing());
              EncodeBegin(*request, outcome, response);
              response->set_streams(order->StreamsForUpload());
            });
      });
}

grpc::ServerReadReactor<v1::WriteChunk>* BlobService::Write(
    grpc::CallbackServerContext*, v1::WriteResponse* response) {
  return StartWriteCall(context_, response);
}

grpc::ServerUnaryReactor* BlobService::FinishUpload(
    grpc::CallbackServerContext*, const v1::FinishUploadRequest* request,
    v1::FinishUploadResponse* response) {
  return HandleUnary(
      context_, "FinishUpload", *request, kSmallRequest,
      [&](const std::shared_ptr<UnaryCall>& call) -> absl::Status {
        Coordinator* const coordinator = context_.coordinator;
        RETURN_IF_ERROR(CheckRun(request->key().run(), *coordinator));
        ASSIGN_OR_RETURN(Fencing fencing, DecodeFencing(request->fencing()));
        ASSIGN_OR_RETURN(Digest digest, DecodeDigest("digest of the update",
                                                     request->digest()));
        return OnDisk<FinishOutcome>(
            context_, call,
            [coordinator, copy = *request, fencing, digest] {
              return coordinator->FinishUpload(copy.session(), fencing,
                                               copy.key().fragment(),
                                               copy.key().round(), digest);
            },
            [coordinator, request, response](const FinishOutcome& outcome) {
              EncodeFencing(coordinator->fencing(),
                            response->mutable_fencing());
              EncodeFinish(*request, outcome, response);
            });
      });
}

grpc::ServerWriteReactor<v1::ReadChunk>* BlobService::Read(
    grpc::CallbackServerContext*, const v1::ReadRequest* request) {
  return StartReadCall(context_, *request);
}

}  // namespace diloco

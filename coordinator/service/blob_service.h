// The bulk plane over gRPC. Everything here touches the disk, so every handler
// goes through the executor.
#ifndef COORDINATOR_SERVICE_BLOB_SERVICE_H_
#define COORDINATOR_SERVICE_BLOB_SERVICE_H_

#include "coordinator/service/handler.h"
#include "diloco/v1/blob.grpc.pb.h"

namespace diloco {

class BlobService final : public v1::Blob::CallbackService {
 public:
  explicit BlobService(ServiceContext context) : context_(context) {}

  grpc::ServerUnaryReactor* BeginUpload(
      grpc::CallbackServerContext* context,
      const v1::BeginUploadRequest* request,
      v1::BeginUploadResponse* response) override;
  grpc::ServerReadReactor<v1::WriteChunk>* Write(
      grpc::CallbackServerContext* context,
      v1::WriteResponse* response) override;
  grpc::ServerUnaryReactor* FinishUpload(
      grpc::CallbackServerContext* context,
      const v1::FinishUploadRequest* request,
      v1::FinishUploadResponse* response) override;
  grpc::ServerWriteReactor<v1::ReadChunk>* Read(
      grpc::CallbackServerContext* context,
      const v1::ReadRequest* request) override;

 private:
  const ServiceContext context_;
};

}  // namespace diloco

#endif  // COORDINATOR_SERVICE_BLOB_SERVICE_H_

// The server half of a download: one reactor per Read stream, one chunk in
// memory and one write in flight.
#ifndef COORDINATOR_SERVICE_BLOB_READ_H_
#define COORDINATOR_SERVICE_BLOB_READ_H_

#include "coordinator/service/handler.h"
#include "diloco/v1/blob.pb.h"

namespace diloco {

grpc::ServerWriteReactor<v1::ReadChunk>* StartReadCall(
    const ServiceContext& context, const v1::ReadRequest& request);

}  // namespace diloco

#endif  // COORDINATOR_SERVICE_BLOB_READ_H_

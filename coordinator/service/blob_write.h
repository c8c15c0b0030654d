// The server half of an upload: one reactor per Write stream. At most two
// chunks are in memory per stream; no third one is read before the disk took
// the first, so that a slow disk slows the sender down.
#ifndef COORDINATOR_SERVICE_BLOB_WRITE_H_
#define COORDINATOR_SERVICE_BLOB_WRITE_H_

#include "coordinator/service/handler.h"
#include "diloco/v1/blob.pb.h"

namespace diloco {

grpc::ServerReadReactor<v1::WriteChunk>* StartWriteCall(
    const ServiceContext& context, v1::WriteResponse* response);

}  // namespace diloco

#endif  // COORDINATOR_SERVICE_BLOB_WRITE_H_

// A client's Write stream as a blocking object: one chunk is on its way while
// the caller prepares the next. One thread.
//
//   ChunkStream stream(stub, &watch);
//   while (more && stream.Send(chunk)) ...   // `chunk` may change at once
//   absl::Status status = stream.Finish();
#ifndef COMMON_RPC_CHUNK_STREAM_H_
#define COMMON_RPC_CHUNK_STREAM_H_

#include <grpcpp/client_context.h>

#include <memory>

#include "absl/status/status.h"
#include "common/rpc/transfer_watch.h"
#include "diloco/v1/blob.grpc.pb.h"

namespace diloco {

class ChunkStream {
 public:
  // `watch` outlives this object; what it watches ends with this stream's
  // failure.
  ChunkStream(std::shared_ptr<v1::Blob::StubInterface> stub,
              TransferWatch* watch);
  // Cancels the call unless it was finished.
  ~ChunkStream();

  // Waits until the chunk before this one was accepted by the line, then hands
  // this one over. False when the stream has ended: see Finish.
  bool Send(const v1::WriteChunk& chunk);
  // Waits for the answer.
  absl::Status Finish();
  // Set when Finish was OK.
  const v1::WriteResponse& response() const;

 private:
  class Reactor;
  const std::shared_ptr<v1::Blob::StubInterface> stub_;
  TransferWatch* const watch_;
  grpc::ClientContext context_;
  std::unique_ptr<Reactor> reactor_;
  bool finished_ = false;
};

}  // namespace diloco

#endif  // COMMON_RPC_CHUNK_STREAM_H_

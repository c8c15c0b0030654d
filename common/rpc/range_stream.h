// A client's Read stream as a blocking object: one chunk comes in while the
// caller works on the one before. One thread.
//
//   RangeStream stream(stub, request, &watch);
//   while (const v1::ReadChunk* chunk = stream.Next()) ...
//   absl::Status status = stream.Finish();
#ifndef COMMON_RPC_RANGE_STREAM_H_
#define COMMON_RPC_RANGE_STREAM_H_

#include <grpcpp/client_context.h>

#include <memory>

#include "absl/status/status.h"
#include "common/rpc/transfer_watch.h"
#include "diloco/v1/blob.grpc.pb.h"

namespace diloco {

class RangeStream {
 public:
  // Asks at once. `watch` outlives this object.
  RangeStream(std::shared_ptr<v1::Blob::StubInterface> stub,
              v1::ReadRequest request, TransferWatch* watch);
  // Cancels the call unless it was finished.
  ~RangeStream();

  // Waits for the next chunk, which stays until the next call; null when none
  // comes any more: see Finish.
  const v1::ReadChunk* Next();
  // After Next returned null.
  absl::Status Finish();

 private:
  class Reactor;
  const std::shared_ptr<v1::Blob::StubInterface> stub_;
  const v1::ReadRequest request_;
  TransferWatch* const watch_;
  grpc::ClientContext context_;
  std::unique_ptr<Reactor> reactor_;
  bool finished_ = false;
};

}  // namespace diloco

#endif  // COMMON_RPC_RANGE_STREAM_H_

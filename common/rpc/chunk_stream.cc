#include "common/rpc/chunk_stream.h"

#include <grpcpp/support/client_callback.h>

#include <utility>

#include "common/base/mutex.h"
#include "common/rpc/status_codec.h"

namespace diloco {

class ChunkStream::Reactor final
    : public grpc::ClientWriteReactor<v1::WriteChunk> {
 public:
  Reactor(v1::Blob::StubInterface* stub, grpc::ClientContext* context,
          TransferWatch* watch)
      : watch_(watch) {
    stub->async()->Write(context, &response_, this);
    // Writes are started outside of reactions until Finish.
    AddHold();
    StartCall();
  }

  bool Send(const v1::WriteChunk& chunk) {
    if (!WaitForLine()) return false;
    {
      MutexLock lock(&mu_);
      writing_ = true;
    }
    // The message is serialised before this returns.
    StartWrite(&chunk);
    return true;
  }

  grpc::Status Finish() {
    if (WaitForLine()) StartWritesDone();
    RemoveHold();
    MutexLock lock(&mu_);
    while (!done_) changed_.Wait(&mu_);
    return status_;
  }

  const v1::WriteResponse& response() const { return response_; }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mu_);
    writing_ = false;
    if (!ok) broken_ = true;
    changed_.SignalAll();
  }

  void OnDone(const grpc::Status& status) override {
    // Others of the same transfer may wait for what this one carried.
    if (!status.ok()) watch_->End();
    MutexLock lock(&mu_);
    status_ = status;
    done_ = true;
    changed_.SignalAll();
  }

 private:
  // False when nothing can be written any more.
  bool WaitForLine() {
    MutexLock lock(&mu_);
    while (writing_) changed_.Wait(&mu_);
    return !broken_;
  }

  TransferWatch* const watch_;
  v1::WriteResponse response_;
  Mutex mu_;
  CondVar changed_;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mu_);
};

ChunkStream::ChunkStream(std::shared_ptr<v1::Blob::StubInterface> stub,
                         TransferWatch* watch)
    : stub_(std::move(stub)),
      watch_(watch),
      reactor_(std::make_unique<Reactor>(stub_.get(), &context_, watch)) {
  watch_->Add(&context_);
}

ChunkStream::~ChunkStream() {
  if (!finished_) {
    context_.TryCancel();
    reactor_->Finish();
  }
  watch_->Remove(&context_);
}

bool ChunkStream::Send(const v1::WriteChunk& chunk) {
  return reactor_->Send(chunk);
}

absl::Status ChunkStream::Finish() {
  finished_ = true;
  return FromGrpcStatus(reactor_->Finish());
}

const v1::WriteResponse& ChunkStream::response() const {
  return reactor_->response();
}

}  // namespace diloco

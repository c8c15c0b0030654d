#include "common/rpc/range_stream.h"

#include <grpcpp/support/client_callback.h>

#include <utility>

#include "common/base/mutex.h"
#include "common/rpc/status_codec.h"

namespace diloco {

class RangeStream::Reactor final
    : public grpc::ClientReadReactor<v1::ReadChunk> {
 public:
  Reactor(v1::Blob::StubInterface* stub, grpc::ClientContext* context,
          const v1::ReadRequest* request) {
    stub->async()->Read(context, request, this);
    // Reads are started outside of reactions until Finish.
    AddHold();
    reading_ = true;
    StartRead(&chunks_[0]);
    StartCall();
  }

  const v1::ReadChunk* Next() {
    int have;
    {
      MutexLock lock(&mu_);
      while (reading_) changed_.Wait(&mu_);
      if (ended_) return nullptr;
      have = coming_;
      coming_ = 1 - coming_;
      reading_ = true;
    }
    StartRead(&chunks_[1 - have]);
    return &chunks_[have];
  }

  grpc::Status Finish() {
    RemoveHold();
    MutexLock lock(&mu_);
    while (!done_) changed_.Wait(&mu_);
    return status_;
  }

  void OnReadDone(bool ok) override {
    MutexLock lock(&mu_);
    reading_ = false;
    ended_ = !ok;
    changed_.SignalAll();
  }

  void OnDone(const grpc::Status& status) override {
    MutexLock lock(&mu_);
    status_ = status;
    done_ = true;
    changed_.SignalAll();
  }

 private:
  // One is the caller's, the other comes in.
  v1::ReadChunk chunks_[2];
  Mutex mu_;
  CondVar changed_;
  int coming_ ABSL_GUARDED_BY(mu_) = 0;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mu_);
};

RangeStream::RangeStream(std::shared_ptr<v1::Blob::StubInterface> stub,
                         v1::ReadRequest request, TransferWatch* watch)
    : stub_(std::move(stub)),
      request_(std::move(request)),
      watch_(watch),
      reactor_(std::make_unique<Reactor>(stub_.get(), &context_, &request_)) {
  watch_->Add(&context_);
}

RangeStream::~RangeStream() {
  if (!finished_) {
    context_.TryCancel();
    reactor_->Finish();
  }
  watch_->Remove(&context_);
}

const v1::ReadChunk* RangeStream::Next() { return reactor_->Next(); }

absl::Status RangeStream::Finish() {
  finished_ = true;
  return FromGrpcStatus(reactor_->Finish());
}

}  // namespace diloco

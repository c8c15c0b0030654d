#include "coordinator/service/blob_write.h"

#include <string>
#include <utility>

#include "common/base/mutex.h"
#include "common/io/crc32c.h"
#include "common/rpc/channel.h"
#include "common/rpc/message_codec.h"
#include "common/rpc/status_codec.h"
#include "common/rpc/traffic.h"

namespace diloco {
namespace {

// Reactions only hand over to the executor; exactly one of a pending read and a
// task of this stream exists at any time until the call has finished.
class WriteCall final : public grpc::ServerReadReactor<v1::WriteChunk>,
                        public StoppableCall {
 public:
  static WriteCall* Start(const ServiceContext& context,
                          v1::WriteResponse* response) {
    std::shared_ptr<WriteCall> call(new WriteCall(context, response));
    call->self_ = call;
    context.tracker->Add(call);
    call->ReadNext();
    return call.get();
  }

  void OnReadDone(bool ok) override {
    // The reference keeps this alive while the task waits, should the call end.
    const absl::Status queued =
        context_.disk->Run([call = self(), ok] { call->OnTask(ok); });
    if (!queued.ok()) FinishOnce(queued);
  }

  void OnCancel() override {
    FinishOnce(absl::CancelledError("the sender went away"));
  }

  void OnDone() override {
    absl::StatusCode code;
    std::shared_ptr<WriteCall> last;
    {
      MutexLock lock(&mu_);
      code = code_;
      last = std::move(self_);
    }
    context_.tracker->Done(this, "Write", code);
  }

  void Stop(const absl::Status& status) override { FinishOnce(status); }

 private:
  WriteCall(const ServiceContext& context, v1::WriteResponse* response)
      : context_(context), response_(response) {}

  std::shared_ptr<WriteCall> self() {
    MutexLock lock(&mu_);
    return self_;
  }

  void ReadNext() {
    MutexLock lock(&mu_);
    if (!finished_) StartRead(&chunk_);
  }

  void FinishOnce(const absl::Status& status) {
    MutexLock lock(&mu_);
    if (finished_) return;
    finished_ = true;
    code_ = status.code();
    if (status.ok()) {
      EncodeFencing(context_.coordinator->fencing(),
                    response_->mutable_fencing());
      response_->set_committed(upload_->offset());
    }
    Finish(ToGrpcStatus(status));
  }

  // On the executor.
  void OnTask(bool has_chunk) {
    {
      MutexLock lock(&mu_);
      if (finished_) return;
    }
    if (!has_chunk) {
      FinishOnce(upload_ != nullptr
                     ? absl::OkStatus()
                     : absl::InvalidArgumentError("Write without a chunk"));
      return;
    }
    const absl::Status status = Take();
    if (status.ok()) {
      ReadNext();
    } else {
      FinishOnce(status);
    }
  }

  absl::Status Take() {
    if (upload_ == nullptr) RETURN_IF_ERROR(Open());
    const std::string& data = chunk_.data();
    if (data.size() > kMaxChunkBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("chunk at offset ", chunk_.offset(), " has ",
                       data.size(), " bytes, the limit is ", kMaxChunkBytes));
    }
    const uint32_t crc = Crc32c(data);
    if (crc != chunk_.crc32c()) {
      return absl::DataLossError(absl::StrCat(
          "chunk at offset ", chunk_.offset(), " arrived with CRC-32C ", crc,
          " instead of ", chunk_.crc32c(), "; send it again"));
    }
    RETURN_IF_ERROR(upload_->Write(chunk_.offset(), data));
    context_.coordinator->CountBulkBytes(session_, WireBytes(chunk_), 0);
    return absl::OkStatus();
  }

  absl::Status Open() {
    Coordinator* const coordinator = context_.coordinator;
    const v1::UpdateKey& key = chunk_.key();
    RETURN_IF_ERROR(CheckRun(key.run(), *coordinator));
    ASSIGN_OR_RETURN(const Fencing fencing, DecodeFencing(chunk_.fencing()));
    session_ = chunk_.session();
    ASSIGN_OR_RETURN(upload_,
                     coordinator->OpenUpload(session_, fencing, key.fragment(),
                                             key.round()));
    return absl::OkStatus();
  }

  const ServiceContext context_;
  v1::WriteResponse* const response_;
  // Owned by the pending read or by the task.
  v1::WriteChunk chunk_;
  std::string session_;
  std::shared_ptr<Coordinator::Upload> upload_;

  Mutex mu_;
  std::shared_ptr<WriteCall> self_ ABSL_GUARDED_BY(mu_);
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  absl::StatusCode code_ ABSL_GUARDED_BY(mu_) = absl::StatusCode::kOk;
};

}  // namespace

grpc::ServerReadReactor<v1::WriteChunk>* StartWriteCall(
    const ServiceContext& context, v1::WriteResponse* response) {
  return WriteCall::Start(context, response);
}

}  // namespace diloco

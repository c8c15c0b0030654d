#include "coordinator/service/blob_write.h"

#include <algorithm>
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

// Reactions only hand over to the executor. There are two chunks: the disk
// works on one while the next one comes in.
class WriteCall final : public grpc::ServerReadReactor<v1::WriteChunk>,
                        public StoppableCall {
 public:
  static WriteCall* Start(const ServiceContext& context,
                          v1::WriteResponse* response) {
    std::shared_ptr<WriteCall> call(new WriteCall(context, response));
    context.tracker->Add(call);
    context.order->Opened();
    MutexLock lock(&call->mu_);
    call->self_ = call;
    call->ReadLocked();
    return call.get();
  }

  void OnReadDone(bool ok) override {
    MutexLock lock(&mu_);
    reading_ = false;
    (ok ? full_ : at_end_) = true;
    WorkLocked();
  }

  void OnCancel() override {
    Stop(absl::CancelledError("the sender went away"));
  }

  void OnDone() override {
    absl::StatusCode code;
    std::shared_ptr<WriteCall> last;
    {
      MutexLock lock(&mu_);
      code = code_;
      last = std::move(self_);
    }
    context_.order->Closed();
    context_.tracker->Done(this, "Write", code);
  }

  void Stop(const absl::Status& status) override {
    MutexLock lock(&mu_);
    FinishLocked(status);
  }

 private:
  WriteCall(const ServiceContext& context, v1::WriteResponse* response)
      : context_(context), response_(response) {}

  void ReadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (finished_ || reading_ || full_ || at_end_) return;
    reading_ = true;
    StartRead(&chunks_[read_index_]);
  }

  // Hands the chunk that has come, or the end, to the executor.
  void WorkLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (finished_ || working_ || !(full_ || at_end_)) return;
    const v1::WriteChunk* const chunk = full_ ? &chunks_[read_index_] : nullptr;
    if (full_) {
      full_ = false;
      read_index_ = 1 - read_index_;
      ReadLocked();
    }
    working_ = true;
    ScheduleLocked(chunk, false);
  }

  void ScheduleLocked(const v1::WriteChunk* chunk, bool parked)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    // The reference keeps this alive while the task waits, should the call end.
    const absl::Status queued = context_.disk->Run(
        [call = self_, chunk, parked] { call->OnTask(chunk, parked); });
    if (!queued.ok()) FinishLocked(queued);
  }

  void FinishLocked(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (finished_) return;
    finished_ = true;
    code_ = status.code();
    context_.order->Drop(this);
    Finish(ToGrpcStatus(status));
  }

  // On the executor, one at a time. `chunk` is null at the end of the stream;
  // `parked`: it had to wait, and its turn has come.
  void OnTask(const v1::WriteChunk* chunk, bool parked) {
    {
      MutexLock lock(&mu_);
      if (finished_) return;
    }
    absl::Status status;
    if (chunk == nullptr) {
      status = End();
    } else if (!parked) {
      status = Check(*chunk);
      if (status.ok() && chunk->waits() &&
          chunk->offset() > upload_->offset()) {
        return Park(*chunk);
      }
    }
    if (status.ok() && chunk != nullptr) status = Take(*chunk);
    MutexLock lock(&mu_);
    working_ = false;
    if (status.ok() && chunk != nullptr) {
      WorkLocked();
    } else {
      FinishLocked(status);
    }
  }

  absl::Status End() {
    if (upload_ == nullptr) {
      return absl::InvalidArgumentError("Write without a chunk");
    }
    const uint64_t committed = upload_->offset();
    MutexLock lock(&mu_);
    // A call that was stopped meanwhile may have no response any more.
    if (finished_) return absl::OkStatus();
    EncodeFencing(context_.coordinator->fencing(),
                  response_->mutable_fencing());
    response_->set_committed(committed);
    return absl::OkStatus();
  }

  absl::Status Check(const v1::WriteChunk& chunk) {
    if (upload_ == nullptr) RETURN_IF_ERROR(Open(chunk));
    const std::string& data = chunk.data();
    if (data.size() > kMaxChunkBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("chunk at offset ", chunk.offset(), " has ", data.size(),
                       " bytes, the limit is ", kMaxChunkBytes));
    }
    const uint32_t crc = Crc32c(data);
    if (crc != chunk.crc32c()) {
      return absl::DataLossError(absl::StrCat(
          "chunk at offset ", chunk.offset(), " arrived with CRC-32C ", crc,
          " instead of ", chunk.crc32c(), "; send it again"));
    }
    return absl::OkStatus();
  }

  void Park(const v1::WriteChunk& chunk) {
    std::shared_ptr<WriteCall> call;
    {
      MutexLock lock(&mu_);
      if (finished_) return;
      call = self_;
    }
    // Once it is parked another thread may go on with it.
    const std::shared_ptr<Coordinator::Upload> upload = upload_;
    context_.order->Park(
        upload.get(), chunk.offset(), this,
        [&upload] { return upload->offset(); },
        [call, &chunk] {
          MutexLock lock(&call->mu_);
          if (!call->finished_) call->ScheduleLocked(&chunk, true);
        });
    MutexLock lock(&mu_);
    // The call may have ended before it was parked.
    if (finished_) context_.order->Drop(this);
  }

  absl::Status Take(const v1::WriteChunk& chunk) {
    const absl::Status written = WriteRest(chunk.offset(), chunk.data());
    if (!written.ok()) {
      // One that is not at its place is a stream of an attempt before.
      if (!absl::IsAborted(written)) context_.order->Fail(upload_.get());
      return written;
    }
    context_.order->Advance(upload_.get(),
                            chunk.offset() + chunk.data().size());
    context_.coordinator->CountBulkBytes(WireBytes(chunk), 0);
    return absl::OkStatus();
  }

  // What is there already came on a stream of another attempt.
  absl::Status WriteRest(uint64_t offset, absl::string_view data) {
    while (true) {
      const uint64_t stands_at = upload_->offset();
      if (stands_at > offset) {
        const uint64_t known =
            std::min<uint64_t>(stands_at - offset, data.size());
        data.remove_prefix(known);
        offset += known;
        if (data.empty()) return absl::OkStatus();
      }
      const absl::Status written = upload_->Write(offset, data);
      // Unless it has moved in between.
      if (!absl::IsAborted(written) || upload_->offset() <= offset) {
        return written;
      }
    }
  }

  absl::Status Open(const v1::WriteChunk& chunk) {
    Coordinator* const coordinator = context_.coordinator;
    const v1::UpdateKey& key = chunk.key();
    RETURN_IF_ERROR(CheckRun(key.run(), *coordinator));
    ASSIGN_OR_RETURN(const Fencing fencing, DecodeFencing(chunk.fencing()));
    ASSIGN_OR_RETURN(upload_,
                     coordinator->OpenUpload(chunk.session(), fencing,
                                             key.fragment(), key.round()));
    return absl::OkStatus();
  }

  const ServiceContext context_;
  v1::WriteResponse* const response_;
  // One is owned by the pending read or waits, the other by the task.
  v1::WriteChunk chunks_[2];
  // Owned by the task.
  std::shared_ptr<Coordinator::Upload> upload_;

  Mutex mu_;
  std::shared_ptr<WriteCall> self_ ABSL_GUARDED_BY(mu_);
  int read_index_ ABSL_GUARDED_BY(mu_) = 0;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool full_ ABSL_GUARDED_BY(mu_) = false;    // chunks_[read_index_] has come.
  bool at_end_ ABSL_GUARDED_BY(mu_) = false;  // None will come any more.
  bool working_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  absl::StatusCode code_ ABSL_GUARDED_BY(mu_) = absl::StatusCode::kOk;
};

}  // namespace

grpc::ServerReadReactor<v1::WriteChunk>* StartWriteCall(
    const ServiceContext& context, v1::WriteResponse* response) {
  return WriteCall::Start(context, response);
}

}  // namespace diloco

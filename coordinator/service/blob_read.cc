#include "coordinator/service/blob_read.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "common/io/crc32c.h"
#include "common/rpc/channel.h"
#include "common/rpc/message_codec.h"
#include "common/rpc/status_codec.h"
#include "common/rpc/traffic.h"

namespace diloco {
namespace {

// Exactly one of a pending write and a task of this stream exists at any time
// until the call has finished. gRPC forbids Finish while a write is pending.
class ReadCall final : public grpc::ServerWriteReactor<v1::ReadChunk>,
                       public StoppableCall {
 public:
  static ReadCall* Start(const ServiceContext& context,
                         const v1::ReadRequest& request) {
    std::shared_ptr<ReadCall> call(new ReadCall(context, request));
    call->self_ = call;
    context.tracker->Add(call);
    call->Schedule();
    return call.get();
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(&mu_);
      writing_ = false;
      if (!ok && ending_.ok()) {
        ending_ = absl::CancelledError("the reader went away");
      }
      if (!ending_.ok()) return FinishLocked(ending_);
    }
    Schedule();
  }

  void OnCancel() override {
    Stop(absl::CancelledError("the reader went away"));
  }

  void OnDone() override {
    absl::StatusCode code;
    std::shared_ptr<ReadCall> last;
    {
      MutexLock lock(&mu_);
      code = code_;
      last = std::move(self_);
    }
    context_.tracker->Done(this, "Read", code);
  }

  void Stop(const absl::Status& status) override {
    MutexLock lock(&mu_);
    if (ending_.ok()) ending_ = status;
    if (!writing_) FinishLocked(ending_);
  }

 private:
  ReadCall(const ServiceContext& context, const v1::ReadRequest& request)
      : context_(context), request_(request) {}

  void Schedule() {
    std::shared_ptr<ReadCall> call;
    {
      MutexLock lock(&mu_);
      if (finished_) return;
      call = self_;
    }
    const absl::Status queued =
        context_.disk->Run([call = std::move(call)] { call->OnTask(); });
    if (!queued.ok()) Stop(queued);
  }

  // On the executor.
  void OnTask() {
    {
      MutexLock lock(&mu_);
      if (finished_) return;
    }
    absl::Status status = absl::OkStatus();
    if (file_ == nullptr) status = Open();
    const bool more = next_ < end_;
    if (status.ok() && more) status = Fill();
    MutexLock lock(&mu_);
    if (finished_) return;
    if (!status.ok() || !more) return FinishLocked(status);
    writing_ = true;
    StartWrite(&chunk_);
  }

  absl::Status Open() {
    Coordinator* const coordinator = context_.coordinator;
    ASSIGN_OR_RETURN(digest_,
                     DecodeDigest("digest of the file", request_.digest()));
    ASSIGN_OR_RETURN(const ServedFile served, coordinator->FindFile(digest_));
    pinned_at_ = coordinator->options().clock->Now();
    if (request_.offset() > served.bytes) {
      return absl::OutOfRangeError(
          absl::StrCat("file ", digest_.Short(), " has ", served.bytes,
                       " bytes, asked for offset ", request_.offset()));
    }
    ASSIGN_OR_RETURN(file_,
                     coordinator->options().fs->OpenForRead(served.path));
    next_ = request_.offset();
    end_ = served.bytes;
    if (request_.limit() != 0) {
      end_ = next_ + std::min(request_.limit(), end_ - next_);
    }
    chunk_.set_total_bytes(served.bytes);
    return absl::OkStatus();
  }

  absl::Status Fill() {
    // Only the first chunk tells the file's size.
    if (next_ != request_.offset()) chunk_.clear_total_bytes();
    std::string* const data = chunk_.mutable_data();
    data->resize(std::min<uint64_t>(kMaxChunkBytes, end_ - next_));
    RETURN_IF_ERROR(
        file_->ReadAt(next_, absl::MakeSpan(data->data(), data->size())));
    chunk_.set_offset(next_);
    chunk_.set_crc32c(Crc32c(*data));
    next_ += data->size();
    const Instant now = context_.coordinator->options().clock->Now();
    if (now - pinned_at_ > kReaderPin / 4) {
      // Looked up again, it stays for its reader.
      context_.coordinator->FindFile(digest_).status().IgnoreError();
      pinned_at_ = now;
    }
    // Tools have no session: what they read is no traffic of the workers.
    if (!request_.session().empty()) {
      context_.coordinator->CountBulkBytes(0, WireBytes(chunk_));
    }
    return absl::OkStatus();
  }

  void FinishLocked(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (finished_) return;
    finished_ = true;
    code_ = status.code();
    Finish(ToGrpcStatus(status));
  }

  const ServiceContext context_;
  const v1::ReadRequest request_;
  // Owned by the pending write or by the task.
  std::unique_ptr<ReadableFile> file_;
  Digest digest_;
  Instant pinned_at_;
  v1::ReadChunk chunk_;
  uint64_t next_ = 0;
  uint64_t end_ = 0;

  Mutex mu_;
  std::shared_ptr<ReadCall> self_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status ending_ ABSL_GUARDED_BY(mu_);
  absl::StatusCode code_ ABSL_GUARDED_BY(mu_) = absl::StatusCode::kOk;
};

}  // namespace

grpc::ServerWriteReactor<v1::ReadChunk>* StartReadCall(
    const ServiceContext& context, const v1::ReadRequest& request) {
  return ReadCall::Start(context, request);
}

}  // namespace diloco

#include "common/rpc/blob_upload.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/io/crc32c.h"
#include "common/rpc/chunk_stream.h"
#include "common/rpc/message_codec.h"
#include "common/rpc/status_codec.h"

namespace diloco {
namespace {

// A chunk that goes out faster than this gets a larger successor, a slower one
// a smaller.
constexpr absl::Duration kChunkTime = absl::Milliseconds(250);
// A chunk is at most this share of what its stream has carried, so that a line
// that breaks early each time still makes progress and repeats little.
constexpr uint64_t kChunkShare = 8;
// Refusals in a row at the same offset before the upload is given up.
constexpr int kMaxRefusals = 5;
constexpr int kMaxDigestMismatches = 2;

class Uploader {
 public:
  Uploader(BlobConnections* connections, const BlobClientOptions& options,
           CallerIdentity* identity, const v1::UpdateKey& key,
           const v1::UpdateValue& value, const ReadableFile& file,
           const TransferCancel& cancel)
      : connections_(connections),
        options_(options),
        identity_(identity),
        key_(key),
        value_(value),
        file_(file),
        cancel_(&cancel, options.shutdown),
        what_(absl::StrCat("upload of fragment ", key.fragment(), " round ",
                           key.round())),
        backoff_(options.backoff) {}

  absl::StatusOr<UploadResult> Run() {
    while (true) {
      if (cancel_.requested())
        return absl::CancelledError(absl::StrCat(what_, " cancelled"));
      absl::StatusOr<std::optional<UploadResult>> result = Try();
      if (result.ok() && result->has_value()) return **result;
      if (!result.ok()) {
        RETURN_IF_ERROR(PauseOrGiveUp(result.status()));
      }
    }
  }

 private:
  // One pass: a verdict, nothing (begin again at once) or what went wrong.
  absl::StatusOr<std::optional<UploadResult>> Try() {
    ASSIGN_OR_RETURN(const v1::BeginUploadResponse begun, Begin());
    if (begun.verdict() == v1::VERDICT_QUEUED) {
      return absl::ResourceExhaustedError(
          absl::StrCat("queued: ", begun.reason()));
    }
    if (begun.verdict() != v1::VERDICT_SEND) {
      return Verdict(begun.verdict(), begun.reason());
    }
    if (begun.offset() > value_.bytes()) {
      return absl::DataLossError(
          absl::StrCat("the other side has ", begun.offset(),
                       " bytes of an update of ", value_.bytes()));
    }
    NoteOffset(begun.offset());
    max_streams_ = std::max(begun.streams(), 1u);
    if (begun.offset() < value_.bytes()) {
      const absl::Status sent = Send(begun.offset());
      // Content that can never be used has a verdict, which Finish asks for.
      if (!absl::IsInvalidArgument(sent)) RETURN_IF_ERROR(sent);
    }
    return Finish();
  }

  absl::StatusOr<std::optional<UploadResult>> Verdict(
      v1::Verdict verdict, const std::string& reason) {
    switch (verdict) {
      case v1::VERDICT_ACCEPTED:
      case v1::VERDICT_LATE:
      case v1::VERDICT_REFUSED:
        return std::optional<UploadResult>(
            {.verdict = verdict, .reason = reason});
      default:
        return Permanent(absl::InvalidArgumentError(absl::StrCat(
            "the coordinator answered with verdict ", static_cast<int>(verdict),
            ", which this build does not know; update this program")));
    }
  }

  absl::StatusOr<v1::BeginUploadResponse> Begin() {
    v1::BeginUploadRequest request;
    const Fencing asked = Identify(&request);
    *request.mutable_key() = key_;
    *request.mutable_value() = value_;
    v1::BeginUploadResponse response;
    grpc::ClientContext context;
    SetTimeout(&context, options_.control_deadline);
    TransferWatch watch(absl::InfiniteDuration(), options_.clock, cancel_);
    watch.Add(&context);
    const Instant start = options_.clock->Now();
    const absl::Status status = FromGrpcStatus(
        connections_->Get(0)->BeginUpload(&context, request, &response));
    if (status.ok() && options_.up != nullptr) {
      options_.up->NoteRoundTrip(options_.clock->Now() - start);
    }
    Count(WireBytes(request), status.ok() ? WireBytes(response) : 0);
    // Its refusals are about key, value or session: they stay.
    if (!status.ok()) {
      return blob_internal::IsTransient(status) ? status : Permanent(status);
    }
    RETURN_IF_ERROR(Observe(asked, response.fencing()));
    return response;
  }

  // Streams from `offset` to the end of the file.
  absl::Status Send(uint64_t offset) {
    TransferWatch watch(options_.progress_limit, options_.clock, cancel_);
    // Chunks go over them in turn, as the other side takes them in order.
    std::vector<std::unique_ptr<ChunkStream>> streams;
    v1::WriteChunk chunk;
    const uint64_t start_offset = offset;
    chunk_bytes_ = options_.min_chunk_bytes;
    if (options_.up != nullptr) options_.up->Start();
    const Fencing asked = identity_->fencing();
    absl::Status read_status;
    for (size_t turn = 0; offset < value_.bytes(); ++turn) {
      if (turn == streams.size()) {
        turn = 0;
        if (streams.size() < WantedStreams()) {
          turn = streams.size();
          streams.push_back(
              std::make_unique<ChunkStream>(connections_->Get(turn), &watch));
          chunk.set_session(identity_->session());
          EncodeFencing(asked, chunk.mutable_fencing());
          *chunk.mutable_key() = key_;
          if (options_.up != nullptr) options_.up->SetUsed(turn + 1);
        }
      }
      std::string* const data = chunk.mutable_data();
      data->resize(std::min(chunk_bytes_, value_.bytes() - offset));
      read_status =
          file_.ReadAt(offset, absl::MakeSpan(data->data(), data->size()));
      if (!read_status.ok() || !Pace(data->size(), watch)) break;
      chunk.set_offset(offset);
      chunk.set_crc32c(Crc32c(*data));
      chunk.set_waits(streams.size() > 1);
      const Instant start = options_.clock->Now();
      if (!streams[turn]->Send(chunk)) break;
      const absl::Duration took = options_.clock->Now() - start;
      Count(WireBytes(chunk), 0);
      watch.Progress();
      if (options_.up != nullptr) options_.up->Passed(data->size(), took);
      offset += data->size();
      AdaptChunk(took, offset - start_offset);
      chunk.clear_session();
      chunk.clear_fencing();
      chunk.clear_key();
    }
    if (!read_status.ok()) watch.End();
    const absl::Status status = FinishAll(streams);
    if (!read_status.ok()) return Permanent(read_status);
    if (watch.stalled()) {
      return absl::DeadlineExceededError(absl::StrCat(
          "no progress for ", absl::FormatDuration(options_.progress_limit),
          " at ", offset, " of ", value_.bytes(), " bytes"));
    }
    RETURN_IF_ERROR(status);
    for (const auto& stream : streams) {
      Count(0, WireBytes(stream->response()));
      RETURN_IF_ERROR(Observe(asked, stream->response().fencing()));
    }
    return absl::OkStatus();
  }

  size_t WantedStreams() const {
    if (options_.up == nullptr) return 1;
    return std::min(static_cast<size_t>(options_.up->connections()),
                    max_streams_);
  }

  // When one fails the others are cancelled: its reason is the one that counts.
  static absl::Status FinishAll(
      const std::vector<std::unique_ptr<ChunkStream>>& streams) {
    absl::Status reason;
    for (const auto& stream : streams) {
      const absl::Status status = stream->Finish();
      if (reason.ok() || (absl::IsCancelled(reason) && !status.ok())) {
        reason = status;
      }
    }
    return reason;
  }

  absl::StatusOr<std::optional<UploadResult>> Finish() {
    v1::FinishUploadRequest request;
    const Fencing asked = Identify(&request);
    *request.mutable_key() = key_;
    request.set_digest(value_.digest());
    v1::FinishUploadResponse response;
    grpc::ClientContext context;
    SetTimeout(&context, options_.control_deadline);
    TransferWatch watch(absl::InfiniteDuration(), options_.clock, cancel_);
    watch.Add(&context);
    const absl::Status status = FromGrpcStatus(
        connections_->Get(0)->FinishUpload(&context, request, &response));
    Count(WireBytes(request), status.ok() ? WireBytes(response) : 0);
    if (status.code() == absl::StatusCode::kDataLoss &&
        ++digest_mismatches_ >= kMaxDigestMismatches) {
      return Permanent(status);
    }
    RETURN_IF_ERROR(status);
    RETURN_IF_ERROR(Observe(asked, response.fencing()));
    return Verdict(response.verdict(), response.reason());
  }

  // Whether and when to begin again after `status`.
  absl::Status PauseOrGiveUp(const absl::Status& status) {
    if (permanent_) return WithContext(status, what_);
    if (cancel_.requested())
      return absl::CancelledError(absl::StrCat(what_, " cancelled"));
    switch (status.code()) {
      // Who we are or what we send is refused for good.
      case absl::StatusCode::kUnauthenticated:
      case absl::StatusCode::kPermissionDenied:
      case absl::StatusCode::kAlreadyExists:
      case absl::StatusCode::kUnimplemented:
        return WithContext(status, what_);
      default:
        break;
    }
    // No answer, or no progress.
    if (absl::IsDeadlineExceeded(status)) connections_->Renew();
    // The other side refused a chunk or the end. Begin tells where it stands or
    // gives a verdict; a refusal that comes back at the same offset is final.
    if (!blob_internal::IsTransient(status) && ++refusals_ > kMaxRefusals) {
      return WithContext(
          status, absl::StrCat(what_, ", refused ", refusals_, " times"));
    }
    return blob_internal::PauseBeforeRetry(options_, what_, status, &backoff_,
                                           cancel_);
  }

  void NoteOffset(uint64_t offset) {
    if (last_offset_ == offset) return;
    // The other side moved: what failed before has been overcome.
    if (last_offset_.has_value()) backoff_.Reset();
    if (offset > last_offset_.value_or(0)) refusals_ = 0;
    last_offset_ = offset;
  }

  // False when the caller wants no more.
  bool Pace(uint64_t bytes, TransferWatch& watch) {
    if (options_.up == nullptr) return true;
    return PauseUnlessCancelled(options_.up->Take(bytes), cancel_, &watch);
  }

  void AdaptChunk(absl::Duration took, uint64_t carried) {
    if (took < kChunkTime / 2) chunk_bytes_ *= 2;
    if (took > kChunkTime) chunk_bytes_ /= 2;
    uint64_t limit = carried / kChunkShare;
    if (options_.up != nullptr) {
      limit = std::min(limit, options_.up->MaxPiece());
    }
    chunk_bytes_ =
        std::clamp(std::min(chunk_bytes_, limit), options_.min_chunk_bytes,
                   options_.max_chunk_bytes);
  }

  template <typename Request>
  Fencing Identify(Request* request) const {
    const Fencing fencing = identity_->fencing();
    request->set_session(identity_->session());
    EncodeFencing(fencing, request->mutable_fencing());
    return fencing;
  }

  absl::Status Observe(const Fencing& asked, const v1::Fencing& reply) {
    const absl::Status status = identity_->Observe(asked, reply);
    return blob_internal::IsTransient(status) ? status : Permanent(status);
  }

  // Marks an error as one that no retry helps against.
  absl::Status Permanent(absl::Status status) {
    if (!status.ok()) permanent_ = true;
    return status;
  }

  void Count(uint64_t sent, uint64_t received) {
    if (options_.traffic == nullptr) return;
    options_.traffic->AddSent(sent);
    options_.traffic->AddReceived(received);
  }

  BlobConnections* const connections_;
  const BlobClientOptions& options_;
  CallerIdentity* const identity_;
  const v1::UpdateKey& key_;
  const v1::UpdateValue& value_;
  const ReadableFile& file_;
  const Cancellation cancel_;
  const std::string what_;

  Backoff backoff_;
  uint64_t chunk_bytes_ = 0;
  size_t max_streams_ = 1;  // The other side allows so many.
  std::optional<uint64_t> last_offset_;
  int refusals_ = 0;
  int digest_mismatches_ = 0;
  bool permanent_ = false;
};

}  // namespace

absl::StatusOr<UploadResult> UploadBlob(BlobConnections* connections,
                                        const BlobClientOptions& options,
                                        CallerIdentity* identity,
                                        const v1::UpdateKey& key,
                                        const v1::UpdateValue& value,
                                        const ReadableFile& file,
                                        const TransferCancel& cancel) {
  return Uploader(connections, options, identity, key, value, file, cancel)
      .Run();
}

}  // namespace diloco

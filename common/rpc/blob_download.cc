#include "common/rpc/blob_download.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/io/crc32c.h"
#include "common/rpc/range_stream.h"

namespace diloco {
namespace {

constexpr int kMaxRestarts = 2;

// Each connection has two ranges of this size under way: one comes while the
// next is asked for.
constexpr uint64_t kRangeBytes = 2 << 20;
constexpr int kRangesPerConnection = 2;
// A single connection brings one range after the other, each as long as all
// before it: whether it needs company is only asked between them.
constexpr uint64_t kFirstRangeBytes = 4 << 20;

class Downloader {
 public:
  Downloader(BlobConnections* connections, const BlobClientOptions& options,
             const std::string& session, const Digest& digest, uint64_t bytes,
             const std::string& path, const TransferCancel& cancel)
      : connections_(connections),
        options_(options),
        session_(session),
        digest_(digest),
        bytes_(bytes),
        path_(path),
        part_(path + ".part"),
        cancel_(&cancel, options.shutdown),
        what_(absl::StrCat("download of ", digest.Short(), " to ", path)),
        backoff_(options.backoff) {}

  absl::Status Run() {
    RETURN_IF_ERROR(Open());
    int mismatches = 0;
    while (true) {
      if (cancel_.requested()) return Cancelled();
      while (have_ < bytes_) {
        const uint64_t before = have_;
        const absl::Status status = Receive();
        if (have_ > before) backoff_.Reset();
        if (have_ == bytes_) break;
        RETURN_IF_ERROR(PauseOrGiveUp(status));
      }
      const Digest got = digester_.Finish();
      if (got == digest_) break;
      const absl::Status mismatch = absl::DataLossError(absl::StrCat(
          part_, " has digest ", got.Short(), " instead of ", digest_.Short()));
      if (++mismatches >= kMaxRestarts) return WithContext(mismatch, what_);
      // What lay there before may have been damaged by a crash.
      RETURN_IF_ERROR(StartOver());
      RETURN_IF_ERROR(blob_internal::PauseBeforeRetry(options_, what_, mismatch,
                                                      &backoff_, cancel_));
    }
    RETURN_IF_ERROR(file_->Sync());
    RETURN_IF_ERROR(options_.fs->Rename(part_, path_));
    return options_.fs->SyncDir(DirName(path_));
  }

 private:
  absl::Status Open() {
    ASSIGN_OR_RETURN(file_, options_.fs->OpenForWrite(part_));
    ASSIGN_OR_RETURN(have_, file_->Size());
    if (have_ > bytes_) return StartOver();
    ASSIGN_OR_RETURN(const auto reader, options_.fs->OpenForRead(part_));
    std::vector<char> buffer(std::min<uint64_t>(have_, kDigestBlockBytes));
    for (uint64_t at = 0; at < have_;) {
      const absl::Span<char> piece = absl::MakeSpan(buffer).subspan(
          0, std::min<uint64_t>(buffer.size(), have_ - at));
      RETURN_IF_ERROR(reader->ReadAt(at, piece));
      digester_.Update(absl::string_view(piece.data(), piece.size()));
      at += piece.size();
    }
    return absl::OkStatus();
  }

  absl::Status StartOver() {
    digester_ = BlockDigester();
    have_ = 0;
    return file_->Truncate(0);
  }

  struct Range {
    uint64_t end = 0;
    std::unique_ptr<RangeStream> stream;
  };

  // Appends what comes until the file is whole or a stream fails.
  absl::Status Receive() {
    TransferWatch watch(options_.progress_limit, options_.clock, cancel_);
    std::deque<Range> ranges;
    const uint64_t start = have_;
    uint64_t asked = have_;
    size_t turn = 0;
    if (options_.down != nullptr) options_.down->Start();
    absl::Status status;
    while (status.ok() && have_ < bytes_) {
      const size_t connections =
          options_.down == nullptr
              ? 1
              : static_cast<size_t>(options_.down->connections());
      const size_t wanted =
          connections == 1 ? 1 : connections * kRangesPerConnection;
      while (ranges.size() < wanted && asked < bytes_) {
        uint64_t size = kRangeBytes;
        if (options_.down == nullptr) {
          size = bytes_;
        } else if (connections == 1) {
          size = std::max(kFirstRangeBytes, have_ - start);
        }
        size = std::min(size, bytes_ - asked);
        ranges.push_back(Ask(asked, size, turn++ % connections, &watch));
        asked += size;
      }
      if (options_.down != nullptr) options_.down->SetUsed(connections);
      status = ReceiveRange(ranges.front(), watch);
      ranges.pop_front();
    }
    watch.End();
    ranges.clear();
    if (watch.stalled()) {
      return absl::DeadlineExceededError(absl::StrCat(
          "no progress for ", absl::FormatDuration(options_.progress_limit),
          " at ", have_, " of ", bytes_, " bytes"));
    }
    return status;
  }

  Range Ask(uint64_t offset, uint64_t size, size_t connection,
            TransferWatch* watch) {
    v1::ReadRequest request;
    request.set_session(session_);
    request.set_digest(digest_.ToBytes());
    request.set_offset(offset);
    request.set_limit(size);
    Count(WireBytes(request), 0);
    return {.end = offset + size,
            .stream = std::make_unique<RangeStream>(
                connections_->Get(connection), std::move(request), watch)};
  }

  absl::Status ReceiveRange(const Range& range, TransferWatch& watch) {
    while (true) {
      const Instant start = options_.clock->Now();
      const v1::ReadChunk* const chunk = range.stream->Next();
      if (chunk == nullptr) break;
      Count(0, WireBytes(*chunk));
      watch.Progress();
      if (options_.down != nullptr) {
        options_.down->Passed(chunk->data().size(),
                              options_.clock->Now() - start);
      }
      RETURN_IF_ERROR(Append(*chunk, range.end, watch));
    }
    RETURN_IF_ERROR(range.stream->Finish());
    if (have_ == range.end) return absl::OkStatus();
    return absl::OutOfRangeError(
        absl::StrCat("the stream ended at ", have_, " of ", bytes_, " bytes"));
  }

  absl::Status Append(const v1::ReadChunk& chunk, uint64_t end,
                      TransferWatch& watch) {
    if (chunk.total_bytes() != 0 && chunk.total_bytes() != bytes_) {
      return absl::OutOfRangeError(absl::StrCat("the other side's file has ",
                                                chunk.total_bytes(),
                                                " bytes, expected ", bytes_));
    }
    if (chunk.offset() != have_ || chunk.data().size() > end - have_) {
      return absl::OutOfRangeError(absl::StrCat(
          "a chunk of ", chunk.data().size(), " bytes at offset ",
          chunk.offset(), " came, expected offset ", have_, " of ", bytes_));
    }
    if (Crc32c(chunk.data()) != chunk.crc32c()) {
      return absl::AbortedError(absl::StrCat("the chunk at offset ", have_,
                                             " was damaged on its way"));
    }
    const absl::Status written = file_->WriteAt(have_, chunk.data());
    if (!written.ok()) {
      broken_ = true;
      return written;
    }
    digester_.Update(chunk.data());
    have_ += chunk.data().size();
    if (options_.down != nullptr &&
        !PauseUnlessCancelled(options_.down->Take(chunk.data().size()), cancel_,
                              &watch)) {
      return Cancelled();
    }
    return absl::OkStatus();
  }

  absl::Status PauseOrGiveUp(const absl::Status& status) {
    if (cancel_.requested()) return Cancelled();
    if (broken_) return WithContext(status, what_);
    if (absl::IsDeadlineExceeded(status)) connections_->Renew();
    if (status.code() == absl::StatusCode::kOutOfRange &&
        ++misfits_ >= kMaxRestarts) {
      return WithContext(absl::DataLossError(status.message()), what_);
    }
    const bool again = blob_internal::IsTransient(status) ||
                       status.code() == absl::StatusCode::kAborted ||
                       status.code() == absl::StatusCode::kOutOfRange;
    if (!again) return WithContext(status, what_);
    return blob_internal::PauseBeforeRetry(options_, what_, status, &backoff_,
                                           cancel_);
  }

  absl::Status Cancelled() const {
    return absl::CancelledError(absl::StrCat(what_, " cancelled"));
  }

  void Count(uint64_t sent, uint64_t received) {
    if (options_.traffic == nullptr) return;
    options_.traffic->AddSent(sent);
    options_.traffic->AddReceived(received);
  }

  BlobConnections* const connections_;
  const BlobClientOptions& options_;
  const std::string& session_;
  const Digest digest_;
  const uint64_t bytes_;
  const std::string& path_;
  const std::string part_;
  const Cancellation cancel_;
  const std::string what_;

  Backoff backoff_;
  std::unique_ptr<WritableFile> file_;
  BlockDigester digester_;
  uint64_t have_ = 0;
  bool broken_ = false;  // Our own disk failed.
  int misfits_ = 0;      // Streams that did not have the expected bytes.
};

}  // namespace

absl::Status DownloadBlob(BlobConnections* connections,
                          const BlobClientOptions& options,
                          const std::string& session, const Digest& digest,
                          uint64_t bytes, const std::string& path,
                          const TransferCancel& cancel) {
  return Downloader(connections, options, session, digest, bytes, path, cancel)
      .Run();
}

}  // namespace diloco

#include "common/rpc/blob_client.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/logging.h"

namespace diloco::blob_internal {

bool IsTransient(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kCancelled:
    // A cut connection may surface as one of these.
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return true;
    default:
      return false;
  }
}

double Draw(const BlobClientOptions& options) {
  if (options.draw) return options.draw();
  const std::string bytes = RandomBytes(sizeof(uint32_t));
  uint32_t bits = 0;
  std::memcpy(&bits, bytes.data(), sizeof(bits));
  return bits / 4294967296.0;
}

absl::Status PauseBeforeRetry(const BlobClientOptions& options,
                              const std::string& what,
                              const absl::Status& status, Backoff* backoff,
                              const Cancellation& cancel) {
  const absl::Duration pause = backoff->Next(Draw(options));
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    // Its turn comes: nothing went wrong.
    DILOCO_LOG(INFO) << what << " waits peer=" << options.peer
                     << " retry_in=" << absl::FormatDuration(pause)
                     << " cause=\"" << status.message() << "\"";
  } else {
    DILOCO_LOG(WARNING) << what << " interrupted peer=" << options.peer
                        << " retry_in=" << absl::FormatDuration(pause)
                        << " cause=\"" << status.ToString() << "\"";
  }
  if (PauseUnlessCancelled(pause, cancel)) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat(what, " cancelled"));
}

}  // namespace diloco::blob_internal

#include "coordinator/service/write_order.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/line.h"

namespace diloco {
namespace {

// Each takes up to 5 MiB: its window, two chunks and one that comes in.
constexpr int kStreams = 16;

}  // namespace

void WriteOrder::Opened() {
  MutexLock lock(&mu_);
  ++open_;
}

void WriteOrder::Closed() {
  MutexLock lock(&mu_);
  --open_;
}

uint32_t WriteOrder::StreamsForUpload() const {
  MutexLock lock(&mu_);
  return static_cast<uint32_t>(
      std::clamp(kStreams - open_, 1, kMaxConnections));
}

absl::Status WriteOrder::Park(const void* upload, uint64_t at, const void* call,
                              const std::function<uint64_t()>& offset,
                              std::function<void()> resume) {
  {
    MutexLock lock(&mu_);
    const auto waiting = std::count_if(
        parked_.begin(), parked_.end(),
        [&](const auto& entry) { return entry.second.upload == upload; });
    // A sender has no more streams; it is not to take those of others.
    if (waiting >= kMaxConnections) {
      return absl::AbortedError(
          absl::StrCat("chunk at offset ", at,
                       " came before its turn, and so did too many others: "
                       "begin the upload again"));
    }
    parked_[call] = {upload, at, std::move(resume)};
  }
  // An Advance that came before has moved it.
  const uint64_t stands_at = offset();
  if (stands_at >= at) Advance(upload, stands_at);
  return absl::OkStatus();
}

void WriteOrder::Drop(const void* call) {
  Parked dropped;
  MutexLock lock(&mu_);
  const auto found = parked_.find(call);
  if (found == parked_.end()) return;
  dropped = std::move(found->second);
  parked_.erase(found);
}

void WriteOrder::Advance(const void* upload, uint64_t offset) {
  std::vector<std::function<void()>> ready;
  {
    MutexLock lock(&mu_);
    for (auto it = parked_.begin(); it != parked_.end();) {
      if (it->second.upload == upload && it->second.at <= offset) {
        ready.push_back(std::move(it->second.resume));
        it = parked_.erase(it);
      } else {
        ++it;
      }
    }
  }
  for (const auto& resume : ready) resume();
}

}  // namespace diloco

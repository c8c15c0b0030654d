#include "coordinator/service/write_order.h"

#include <algorithm>
#include <utility>
#include <vector>

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

void WriteOrder::Park(const void* upload, uint64_t at, const void* call,
                      const std::function<uint64_t()>& offset,
                      std::function<void()> resume) {
  std::function<void()> one_too_many;
  {
    MutexLock lock(&mu_);
    int waiting = 0;
    auto longest = parked_.end();
    for (auto it = parked_.begin(); it != parked_.end(); ++it) {
      if (it->second.upload != upload) continue;
      ++waiting;
      if (longest == parked_.end() || it->second.turn < longest->second.turn) {
        longest = it;
      }
    }
    if (waiting >= kMaxConnections) {
      one_too_many = std::move(longest->second.resume);
      parked_.erase(longest);
    }
    parked_[call] = {upload, at, ++turns_, std::move(resume)};
  }
  if (one_too_many != nullptr) one_too_many();
  // An Advance that came before has moved it.
  const uint64_t stands_at = offset();
  if (stands_at >= at) Advance(upload, stands_at);
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

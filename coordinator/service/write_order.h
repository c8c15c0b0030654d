// The Write calls under way: how many streams an upload may be spread over, and
// the chunks that came before what lies in front of them. Private to
// coordinator/service.
//
// A chunk that is too early stays with its call, which reads no more until the
// chunk's turn; so each stream holds two chunks and its window, and no buffer
// grows. What fills the gap comes on another stream of the same sender, who
// ends all of them when one fails. Streams of an attempt before may be there
// still: they help or end alone, and never end those of a later one.
#ifndef COORDINATOR_SERVICE_WRITE_ORDER_H_
#define COORDINATOR_SERVICE_WRITE_ORDER_H_

#include <cstdint>
#include <functional>
#include <map>

#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace diloco {

// Thread-safe. `upload` and `call` are only names.
class WriteOrder {
 public:
  void Opened();
  void Closed();
  // For an upload that begins: what is left of all streams, which bounds the
  // memory they take together; at least one, at most as many as a sender uses.
  uint32_t StreamsForUpload() const;

  // Runs `resume` once: from Advance or, when `offset()`, asked again, has come
  // that far, at once; not after Drop. When more of this upload wait than a
  // sender has streams, the one that has waited longest is resumed.
  void Park(const void* upload, uint64_t at, const void* call,
            const std::function<uint64_t()>& offset,
            std::function<void()> resume);
  void Drop(const void* call);
  // The upload stands at `offset`: resumes what waited for that.
  void Advance(const void* upload, uint64_t offset);
  // It cannot go on: resumes all that wait for it, which then see why.
  void Fail(const void* upload) { Advance(upload, ~0ull); }

 private:
  struct Parked {
    const void* upload = nullptr;
    uint64_t at = 0;
    uint64_t turn = 0;
    std::function<void()> resume;
  };
  mutable Mutex mu_;
  int open_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t turns_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<const void*, Parked> parked_ ABSL_GUARDED_BY(mu_);  // By call.
};

}  // namespace diloco

#endif  // COORDINATOR_SERVICE_WRITE_ORDER_H_

// The CoordinatorPort without a network: calls a Coordinator in this process.
// Can lose replies and be cut off, to test what a worker does then.
#ifndef TESTS_SUPPORT_AGENT_MEMORY_PORT_H_
#define TESTS_SUPPORT_AGENT_MEMORY_PORT_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "coordinator/runtime/coordinator.h"
#include "worker/transport/coordinator_port.h"

namespace diloco {

// Where the coordinator is; a restart swaps it. Thread-safe.
class CoordinatorSlot {
 public:
  void Set(std::shared_ptr<Coordinator> coordinator);
  std::shared_ptr<Coordinator> Get() const;  // Null: away.

 private:
  mutable Mutex mu_;
  std::shared_ptr<Coordinator> coordinator_ ABSL_GUARDED_BY(mu_);
};

class MemoryPort final : public CoordinatorPort {
 public:
  explicit MemoryPort(CoordinatorSlot* slot) : slot_(slot) {}

  // Cut off: every call is UNAVAILABLE.
  void set_cut(bool cut) { cut_ = cut; }
  // Uploads are UNAVAILABLE, all else works.
  void set_uploads_cut(bool cut) { uploads_cut_ = cut; }
  // The next `n` upload commits lose their reply and are sent again.
  void set_lost_replies(int n) { lost_replies_ = n; }

  absl::StatusOr<JoinReply> Join(const JoinCall& call) override;
  absl::StatusOr<RunView> Watch(uint64_t known_revision,
                                absl::Duration max_wait) override;
  absl::StatusOr<uint64_t> Report(const ProgressReport& report) override;
  absl::StatusOr<std::vector<RemoteFile>> Resolve(
      uint32_t fragment, std::optional<uint64_t> have_version) override;
  absl::Status ReportEval(uint64_t version, uint32_t slice, double loss_sum,
                          uint64_t tokens) override;
  absl::Status Leave(const std::string& reason) override;
  absl::StatusOr<UploadOutcome> Upload(const UpdateOffer& offer,
                                       const ReadableFile& file,
                                       const CancelFlag& cancel) override;
  absl::Status Download(const Digest& digest, uint64_t bytes,
                        const std::string& path,
                        const CancelFlag& cancel) override;
  void Shutdown() override { shutdown_ = true; }
  // What was offered, in order, without immediate repeats.
  std::vector<UpdateOffer> offers() const {
    MutexLock lock(&mu_);
    return offers_;
  }
  Traffic traffic() const override { return {}; }

 private:
  // Calls `start` with the coordinator and a Done, and waits for the answer.
  template <typename T>
  absl::StatusOr<T> Call(
      const std::function<void(Coordinator&, Done<T>)>& start);
  absl::StatusOr<UploadOutcome> UploadOnce(Coordinator& coordinator,
                                           const UpdateOffer& offer,
                                           const ReadableFile& file,
                                           const CancelFlag& cancel);

  CoordinatorSlot* const slot_;
  std::atomic<bool> cut_{false};
  std::atomic<bool> uploads_cut_{false};
  std::atomic<bool> shutdown_{false};
  std::atomic<int> lost_replies_{0};
  mutable Mutex mu_;
  std::string session_ ABSL_GUARDED_BY(mu_);
  Fencing fencing_ ABSL_GUARDED_BY(mu_);
  std::vector<UpdateOffer> offers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace diloco

#endif  // TESTS_SUPPORT_AGENT_MEMORY_PORT_H_

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

  // Where downloads go.
  void set_file_system(FileSystem* fs) { fs_ = fs; }
  // Cut off: every call is UNAVAILABLE.
  void set_cut(bool cut) { cut_ = cut; }
  // Uploads are UNAVAILABLE, all else works.
  void set_uploads_cut(bool cut) { uploads_cut_ = cut; }
  // The next `n` upload commits lose their reply and are sent again.
  void set_lost_replies(int n) { lost_replies_ = n; }
  // The next upload commit loses its reply, and uploads are cut from then on.
  void CutUploadsAfterCommit() { cut_after_commit_ = true; }
  // The next `n` evaluation reports reach nobody and end with `code`.
  void FailEvals(absl::StatusCode code, int n) {
    eval_code_ = code;
    eval_failures_ = n;
  }
  // The coordinator does not know the session that later calls carry.
  void ForgetSession() {
    MutexLock lock(&mu_);
    session_ = std::string(16, 'x');
  }

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
  int joins() const { return joins_; }
  // A view that says so has come, and was taken in.
  bool knows_of_drain() const { return knows_of_drain_; }
  int cancelled_uploads() const { return cancelled_uploads_; }
  JoinCall last_join() const {
    MutexLock lock(&mu_);
    return last_join_;
  }
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
  FileSystem* fs_ = FileSystem::Posix();
  std::atomic<bool> cut_{false};
  std::atomic<bool> uploads_cut_{false};
  std::atomic<bool> shutdown_{false};
  std::atomic<int> lost_replies_{0};
  std::atomic<bool> cut_after_commit_{false};
  std::atomic<absl::StatusCode> eval_code_{absl::StatusCode::kOk};
  std::atomic<int> eval_failures_{0};
  std::atomic<int> joins_{0};
  std::atomic<bool> told_drain_{false};
  std::atomic<bool> knows_of_drain_{false};
  std::atomic<int> cancelled_uploads_{0};
  mutable Mutex mu_;
  std::string session_ ABSL_GUARDED_BY(mu_);
  Fencing fencing_ ABSL_GUARDED_BY(mu_);
  JoinCall last_join_ ABSL_GUARDED_BY(mu_);
  std::vector<UpdateOffer> offers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace diloco

#endif  // TESTS_SUPPORT_AGENT_MEMORY_PORT_H_

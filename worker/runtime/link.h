// Keeps a worker in touch with its coordinator: one thread watches, one beats.
// The agent's main thread reads the newest view and is woken when it changes.
#ifndef WORKER_RUNTIME_LINK_H_
#define WORKER_RUNTIME_LINK_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/random_source.h"
#include "common/base/threads.h"
#include "worker/train/trainer.h"
#include "worker/transport/coordinator_port.h"

namespace diloco {

// Thread-safe.
class Link {
 public:
  struct Options {
    CoordinatorPort* port = nullptr;  // Outlives the link, as `clock` does.
    Clock* clock = nullptr;
    Threads* threads = Threads::Real();
    RandomSource random_bytes = RandomBytes;  // For jitter.
    absl::Duration beat_every;
    // Polled: once true, this worker is to leave.
    std::function<bool()> stop_requested;
    // How long an upload may go on then.
    absl::Duration hand_in_time;
  };
  explicit Link(Options options);
  ~Link();

  void Start();
  void Stop();

  // The newest view; absent before the first.
  std::optional<RunView> view() const;
  // Not OK once this worker can never go on: superseded session, foreign
  // lineage, two coordinators.
  absl::Status fatal() const;
  // Until when what is done may be handed in, once this worker is to leave:
  // asked to stop here, or drained by the coordinator.
  std::optional<Instant> hand_in_by();
  // The newest call found nobody.
  bool away() const;
  // Waits until a view with another revision than `seen` is there, the link is
  // fatal or `timeout` passed. A worker that is to leave returns at once, until
  // hand_in_by has told it.
  void WaitForChange(uint64_t seen, absl::Duration timeout);
  // Ends a call of WaitForChange, the next one if none waits.
  void Wake();
  // A transfer under way. cancel() ends it once nobody wants it: the fragment's
  // version grows past `base_version`, the link is fatal or stopped; when this
  // worker is to leave, a download at once, and an upload when its time is over
  // or nobody answers. Does not outlive the link.
  class Transfer {
   public:
    enum class Kind { kDownload, kUpload };
    Transfer(Link* link, Kind kind, uint32_t fragment, uint64_t base_version);
    ~Transfer();
    const CancelFlag& cancel() const { return cancel_; }

   private:
    friend class Link;
    Link* const link_;
    const Kind kind_;
    const uint32_t fragment_;
    const uint64_t base_version_;
    CancelFlag cancel_{false};
  };

  // What the next beats tell.
  void SetProgress(const ProgressReport& report);
  // Sends the current progress at once; `away` tells what came of it.
  void BeatNow();

  // The result of one slice. It is reported at once, and again with each beat
  // while the view still asks for it: an answer may be lost, or the slice come
  // back to this worker. Results of older versions are forgotten.
  void AddEval(uint64_t version, uint32_t slice, const LossSum& sum);

 private:
  void WatchLoop();
  void BeatLoop();
  void OnView(RunView view);
  void OnError(const absl::Status& status);
  // Notices that this worker is to leave, and ends transfers.
  void LookForLeaving() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsWanted(const Transfer& transfer) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends the transfers that nobody wants any more.
  void LookAtTransfers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteAnswer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReportEvals();

  const Options options_;
  std::unique_ptr<Threads::Thread> watch_thread_;
  std::unique_ptr<Threads::Thread> beat_thread_;
  mutable Mutex mu_;
  WaitPoint changed_{options_.threads};
  std::optional<RunView> view_ ABSL_GUARDED_BY(mu_);
  absl::Status fatal_ ABSL_GUARDED_BY(mu_);
  ProgressReport progress_ ABSL_GUARDED_BY(mu_);
  std::set<Transfer*> transfers_ ABSL_GUARDED_BY(mu_);
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  bool beat_now_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t eval_version_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint32_t, LossSum> evals_ ABSL_GUARDED_BY(mu_);  // By slice.
  // Since when the coordinator does not answer.
  std::optional<Instant> away_since_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;  // The port was shut down.
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<Instant> hand_in_by_ ABSL_GUARDED_BY(mu_);
  bool leaving_told_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace diloco

#endif  // WORKER_RUNTIME_LINK_H_

// Keeps a worker in touch with its coordinator: one thread watches, one beats.
// The agent's main thread reads the newest view and is woken when it changes.
#ifndef WORKER_RUNTIME_LINK_H_
#define WORKER_RUNTIME_LINK_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
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
    // Polled: once true, transfers are cancelled and waiting ends.
    std::function<bool()> stop_requested;
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
  // Waits until a view with another revision than `seen` is there, the link is
  // fatal, a stop is requested or `timeout` passed.
  void WaitForChange(uint64_t seen, absl::Duration timeout);
  // Ends a transfer once the view no longer wants it: set by the watch thread
  // when the version grows past `base_version`, the link is fatal or Stop.
  void GuardTransfer(uint64_t base_version);
  const CancelFlag& cancel() const { return cancel_; }

  // What the next beats tell.
  void SetProgress(const ProgressReport& report);
  // Sends the current progress at once, whatever comes of it.
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
  void ReportEvals();

  const Options options_;
  CancelFlag cancel_{false};
  std::unique_ptr<Threads::Thread> watch_thread_;
  std::unique_ptr<Threads::Thread> beat_thread_;
  mutable Mutex mu_;
  WaitPoint changed_{options_.threads};
  std::optional<RunView> view_ ABSL_GUARDED_BY(mu_);
  absl::Status fatal_ ABSL_GUARDED_BY(mu_);
  ProgressReport progress_ ABSL_GUARDED_BY(mu_);
  uint64_t guard_version_ ABSL_GUARDED_BY(mu_) = 0;
  bool beat_now_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t eval_version_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint32_t, LossSum> evals_ ABSL_GUARDED_BY(mu_);  // By slice.
  bool away_ ABSL_GUARDED_BY(mu_) = false;  // The coordinator does not answer.
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  bool stop_seen_ ABSL_GUARDED_BY(mu_) = false;  // Of stop_requested.
};

}  // namespace diloco

#endif  // WORKER_RUNTIME_LINK_H_

// Work beside the training thread whose result that thread takes over later.
//
//   Job<int> job(threads, [] { return 42; }, [&] { link.Wake(); });
//   ... if (job.ready()) use(job.Take());
#ifndef WORKER_RUNTIME_JOB_H_
#define WORKER_RUNTIME_JOB_H_

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "common/base/mutex.h"
#include "common/base/threads.h"

namespace diloco {

// Thread-safe; Wait and Take by its owner only. What `body` and `done` use
// outlives it.
template <typename T>
class Job {
 public:
  // Runs `body`, then `done`, on a thread of its own; with `threads` null
  // `body` alone on this one, before the constructor returns.
  Job(Threads* threads, std::function<T()> body, std::function<void()> done) {
    if (threads == nullptr) {
      Set(body());
      return;
    }
    thread_ =
        threads->Start([this, body = std::move(body), done = std::move(done)] {
          Set(body());
          done();
        });
  }
  ~Job() { Wait(); }

  bool ready() const {
    MutexLock lock(&mu_);
    return result_.has_value();
  }
  void Wait() {
    if (thread_ != nullptr) thread_->Join();
    thread_.reset();
  }
  // Waits, too.
  T Take() {
    Wait();
    MutexLock lock(&mu_);
    return *std::move(result_);
  }

 private:
  void Set(T result) {
    MutexLock lock(&mu_);
    result_ = std::move(result);
  }

  std::unique_ptr<Threads::Thread> thread_;
  mutable Mutex mu_;
  std::optional<T> result_ ABSL_GUARDED_BY(mu_);
};

}  // namespace diloco

#endif  // WORKER_RUNTIME_JOB_H_

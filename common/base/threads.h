// The seam for threads and for waiting: the machine's in the daemons; in the
// simulation (tests/sim) fibers of one thread over a virtual clock. What the
// simulation runs starts threads and waits through this only.
//
//   std::unique_ptr<Threads::Thread> thread_;
//   WaitPoint wake_{options_.threads};
//   thread_ = options_.threads->Start([this] { Loop(); });
//   wake_.WaitFor(&mu_, absl::Seconds(1));
//   thread_->Join();
#ifndef COMMON_BASE_THREADS_H_
#define COMMON_BASE_THREADS_H_

#include <functional>
#include <memory>

#include "common/base/mutex.h"

namespace diloco {

class WaitPoint;

// Thread-safe.
class Threads {
 public:
  virtual ~Threads() = default;

  class Thread {
   public:
    virtual ~Thread() = default;
    // Waits for its end. Once, before it is destroyed.
    virtual void Join() = 0;
  };
  virtual std::unique_ptr<Thread> Start(std::function<void()> body) = 0;

  // What a WaitPoint does where threads are not the machine's. `mu` is held at
  // call and return, free in between. True when `timeout` passed without a
  // signal.
  virtual bool Wait(const WaitPoint* at, Mutex* mu, absl::Duration timeout) = 0;
  virtual void Wake(const WaitPoint* at) = 0;

  // The machine's; never destroyed.
  static Threads* Real();
};

// A condition variable of such threads. Spurious wake-ups happen: wait in a
// loop.
class WaitPoint {
 public:
  explicit WaitPoint(Threads* threads)
      : other_(threads == Threads::Real() ? nullptr : threads) {}

  void Wait(Mutex* mu) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (other_ == nullptr) return changed_.Wait(mu);
    (void)other_->Wait(this, mu, absl::InfiniteDuration());
  }
  // True when `timeout` passed without a signal.
  bool WaitFor(Mutex* mu, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (other_ == nullptr) return changed_.WaitFor(mu, timeout);
    return other_->Wait(this, mu, timeout);
  }
  void Signal() {
    if (other_ == nullptr) return changed_.Signal();
    other_->Wake(this);
  }
  void SignalAll() {
    if (other_ == nullptr) return changed_.SignalAll();
    other_->Wake(this);
  }

 private:
  Threads* const other_;  // Null: the machine's.
  CondVar changed_;
};

}  // namespace diloco

#endif  // COMMON_BASE_THREADS_H_

// Where work runs that must not block its caller: a small pool of threads with
// a bounded queue.
//
//   ThreadPool disk("blob", /*threads=*/2, /*max_queued=*/256);
//   RETURN_IF_ERROR(disk.Run([file] { ... }));
#ifndef COMMON_BASE_EXECUTOR_H_
#define COMMON_BASE_EXECUTOR_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace diloco {

// Thread-safe.
class Executor {
 public:
  virtual ~Executor() = default;
  // Runs the task soon, on another thread or before this returns. Never waits
  // for room: RESOURCE_EXHAUSTED when the queue is full; the task is dropped.
  virtual absl::Status Run(std::function<void()> task) = 0;
};

// Runs the tasks in the order of their arrival on a fixed number of threads.
class ThreadPool final : public Executor {
 public:
  // `name` is for error messages.
  ThreadPool(std::string name, int threads, size_t max_queued);
  // Runs what is queued, then ends the threads.
  ~ThreadPool() override;

  absl::Status Run(std::function<void()> task) override;

 private:
  void Work();

  const std::string name_;
  const size_t max_queued_;
  Mutex mu_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace diloco

#endif  // COMMON_BASE_EXECUTOR_H_

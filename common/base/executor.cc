#include "common/base/executor.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace diloco {

ThreadPool::ThreadPool(std::string name, int threads, size_t max_queued)
    : name_(std::move(name)), max_queued_(max_queued) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::Status ThreadPool::Run(std::function<void()> task) {
  MutexLock lock(&mu_);
  if (queue_.size() >= max_queued_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the ", name_, " threads have ", queue_.size(),
                     " tasks waiting, which is the limit; try again later"));
  }
  queue_.push_back(std::move(task));
  changed_.Signal();
  return absl::OkStatus();
}

void ThreadPool::Work() {
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(&mu_);
      while (queue_.empty() && !stopping_) changed_.Wait(&mu_);
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task();
  }
}

}  // namespace diloco

// Writes checkpoints on a thread of its own while training goes on. Used by
// the agent for the periodic ones.
#ifndef WORKER_RUNTIME_BACKGROUND_WRITER_H_
#define WORKER_RUNTIME_BACKGROUND_WRITER_H_

#include <memory>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/threads.h"
#include "worker/update/checkpoint.h"

namespace diloco {

// Thread-safe. The store is touched by this class only while a write runs:
// call Wait before using it directly.
class BackgroundWriter {
 public:
  BackgroundWriter(CheckpointStore* store, Threads* threads)
      : store_(store), threads_(threads) {}
  ~BackgroundWriter() { (void)Wait(); }

  // Starts the write, after the one before has ended.
  void Start(CheckpointHeader header, std::vector<NamedBuffer> buffers);
  bool busy() const;
  // Waits for the running write; its outcome (OK when there was none).
  absl::Status Wait();

 private:
  CheckpointStore* const store_;
  Threads* const threads_;
  std::unique_ptr<Threads::Thread> thread_;
  mutable Mutex mu_;
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status outcome_ ABSL_GUARDED_BY(mu_);
};

}  // namespace diloco

#endif  // WORKER_RUNTIME_BACKGROUND_WRITER_H_

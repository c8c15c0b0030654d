// Writes checkpoints on a thread of its own while training goes on. Used by
// the agent for the periodic ones.
#ifndef WORKER_RUNTIME_BACKGROUND_WRITER_H_
#define WORKER_RUNTIME_BACKGROUND_WRITER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/threads.h"
#include "worker/update/checkpoint.h"

namespace diloco {

// Thread-safe. Writes happen in the order of Reserve and Start, so that no
// older state comes to lie over a newer one.
class BackgroundWriter {
 public:
  BackgroundWriter(CheckpointStore* store, Threads* threads)
      : store_(store), threads_(threads) {}
  ~BackgroundWriter() { (void)Wait(); }

  // A place in the order, for one call of Write from any thread.
  uint64_t Reserve();
  absl::Status Write(uint64_t turn, const CheckpointHeader& header,
                     absl::Span<const NamedBuffer> buffers);
  // Starts a write on a thread of its own, after the one before has ended.
  void Start(CheckpointHeader header, std::vector<NamedBuffer> buffers);
  bool busy() const;
  // `inner_steps` of the newest checkpoint on disk: a write that waits, runs or
  // failed does not count.
  uint64_t durable_steps() const;
  // Of a checkpoint that was there before.
  void set_durable_steps(uint64_t steps);
  // Waits for the running write; its outcome (OK when there was none).
  absl::Status Wait();

 private:
  CheckpointStore* const store_;
  Threads* const threads_;
  std::unique_ptr<Threads::Thread> thread_;
  mutable Mutex mu_;
  WaitPoint turned_{threads_};
  uint64_t reserved_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t written_ ABSL_GUARDED_BY(mu_) = 0;  // Turns that are over.
  uint64_t durable_steps_ ABSL_GUARDED_BY(mu_) = 0;
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status outcome_ ABSL_GUARDED_BY(mu_);
};

}  // namespace diloco

#endif  // WORKER_RUNTIME_BACKGROUND_WRITER_H_

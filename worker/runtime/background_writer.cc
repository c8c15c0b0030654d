#include "worker/runtime/background_writer.h"

#include <utility>

#include "common/base/logging.h"

namespace diloco {

void BackgroundWriter::Start(CheckpointHeader header,
                             std::vector<NamedBuffer> buffers) {
  (void)Wait();
  {
    MutexLock lock(&mu_);
    busy_ = true;
    outcome_ = absl::OkStatus();
  }
  thread_ = threads_->Start(
      [this, header = std::move(header), buffers = std::move(buffers)] {
        const absl::Status status = store_->Write(header, buffers);
        if (!status.ok()) {
          DILOCO_LOG(WARNING) << "the checkpoint was not written error=\""
                              << status.message() << "\"";
        }
        MutexLock lock(&mu_);
        outcome_ = status;
        busy_ = false;
      });
}

bool BackgroundWriter::busy() const {
  MutexLock lock(&mu_);
  return busy_;
}

absl::Status BackgroundWriter::Wait() {
  if (thread_ != nullptr) thread_->Join();
  thread_.reset();
  MutexLock lock(&mu_);
  return outcome_;
}

}  // namespace diloco

#include "worker/runtime/background_writer.h"

#include <utility>

#include "common/base/logging.h"

namespace diloco {

uint64_t BackgroundWriter::Reserve() {
  MutexLock lock(&mu_);
  return reserved_++;
}

absl::Status BackgroundWriter::Write(uint64_t turn,
                                     const CheckpointHeader& header,
                                     absl::Span<const NamedBuffer> buffers) {
  {
    MutexLock lock(&mu_);
    while (written_ != turn) turned_.Wait(&mu_);
  }
  const absl::Status status = store_->Write(header, buffers);
  MutexLock lock(&mu_);
  if (status.ok()) durable_steps_ = header.inner_steps;
  ++written_;
  turned_.SignalAll();
  return status;
}

void BackgroundWriter::Start(CheckpointHeader header,
                             std::vector<NamedBuffer> buffers) {
  (void)Wait();
  {
    MutexLock lock(&mu_);
    busy_ = true;
    outcome_ = absl::OkStatus();
  }
  thread_ = threads_->Start([this, turn = Reserve(), header = std::move(header),
                             buffers = std::move(buffers)] {
    const absl::Status status = Write(turn, header, buffers);
    if (!status.ok()) {
      DILOCO_LOG(WARNING) << "the checkpoint was not written and will be tried "
                             "again inner_steps="
                          << header.inner_steps << " error=\""
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

uint64_t BackgroundWriter::durable_steps() const {
  MutexLock lock(&mu_);
  return durable_steps_;
}

void BackgroundWriter::set_durable_steps(uint64_t steps) {
  MutexLock lock(&mu_);
  durable_steps_ = steps;
}

absl::Status BackgroundWriter::Wait() {
  if (thread_ != nullptr) thread_->Join();
  thread_.reset();
  MutexLock lock(&mu_);
  return outcome_;
}

}  // namespace diloco

#include "common/rpc/transfer_watch.h"

#include <algorithm>

namespace diloco {
namespace {

// How soon a cancellation is noticed.
constexpr absl::Duration kLook = absl::Milliseconds(50);

}  // namespace

bool PauseUnlessCancelled(absl::Duration pause, const Cancellation& cancel,
                          TransferWatch* watch) {
  Mutex mu;
  CondVar never;
  MutexLock lock(&mu);
  while (pause > absl::ZeroDuration() && !cancel.requested()) {
    const absl::Duration slice = std::min(pause, kLook);
    never.WaitFor(&mu, slice);
    pause -= slice;
    if (watch != nullptr) watch->Progress();
  }
  return !cancel.requested();
}

TransferWatch::TransferWatch(absl::Duration limit, Clock* clock,
                             const Cancellation& cancel)
    : limit_(limit),
      clock_(clock),
      cancel_(cancel),
      last_(clock->Now()),
      thread_([this] { Run(); }) {}

TransferWatch::~TransferWatch() {
  {
    MutexLock lock(&mu_);
    done_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void TransferWatch::Add(grpc::ClientContext* context) {
  MutexLock lock(&mu_);
  contexts_.insert(context);
  if (ended_) context->TryCancel();
}

void TransferWatch::Remove(grpc::ClientContext* context) {
  MutexLock lock(&mu_);
  contexts_.erase(context);
}

void TransferWatch::End() {
  MutexLock lock(&mu_);
  EndLocked();
}

void TransferWatch::EndLocked() {
  ended_ = true;
  for (grpc::ClientContext* context : contexts_) context->TryCancel();
}

void TransferWatch::Progress() {
  MutexLock lock(&mu_);
  last_ = clock_->Now();
}

void TransferWatch::Run() {
  MutexLock lock(&mu_);
  while (!done_ && !ended_) {
    if (cancel_.requested()) return EndLocked();
    if (clock_->Now() - last_ >= limit_) {
      stalled_ = true;
      return EndLocked();
    }
    changed_.WaitFor(&mu_, kLook);
  }
}

}  // namespace diloco

// The fold thread of CoordinatorImpl: folds what the sequencer closed, and
// removes old files when there is no room.

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "coordinator/runtime/coordinator_impl.h"

namespace diloco {
namespace {

constexpr absl::Duration kFoldRetry = absl::Seconds(2);
// A disk does not fill up faster than this matters.
constexpr absl::Duration kFreeEvery = absl::Seconds(1);

}  // namespace

void CoordinatorImpl::StartFolds() {
  for (uint32_t f = 0; f < fold_running_.size(); ++f) {
    if (fold_running_[f]) continue;
    std::optional<FoldOrder> order = PendingFold(sequencer_->state(), f);
    if (!order.has_value()) continue;
    fold_running_[f] = true;
    MutexLock lock(&fold_mu_);
    orders_.push_back({f, *std::move(order)});
    fold_wake_.Signal();
  }
}

void CoordinatorImpl::SubmitFold(VersionPublished published) {
  {
    // The round that opens next finds room beside what was just written.
    MutexLock lock(&fold_mu_);
    disk_changed_ = true;
  }
  sequencer_->Submit(FoldDoneEvent{std::move(published)},
                     [this](const absl::Status& status, uint64_t) {
                       if (!status.ok() && !absl::IsUnavailable(status)) {
                         Fatal(status);
                       }
                     });
}

void CoordinatorImpl::FoldLoop() {
  while (true) {
    std::vector<Fact> learn;
    std::optional<uint64_t> room;
    std::optional<std::pair<uint32_t, FoldOrder>> order;
    {
      MutexLock lock(&fold_mu_);
      while (orders_.empty() && !room_wanted_.has_value() && !fold_stop_) {
        fold_wake_.Wait(&fold_mu_);
      }
      if (fold_stop_) return;
      learn.swap(to_learn_);
      room = room_wanted_;
      if (!orders_.empty()) {
        order = std::move(orders_.front());
        orders_.erase(orders_.begin());
      }
    }
    for (const Fact& fact : learn) engine_->Learn(fact);
    if (room.has_value()) {
      MakeRoom(*room);
      MutexLock lock(&fold_mu_);
      room_wanted_.reset();
      disk_changed_ = true;
    }
    if (!order.has_value()) continue;
    engine_->Prune(order->first, options_.clock->Now());
    const Instant begin = options_.clock->Now();
    // The fold's buffers take the place of what the uploads left free in the
    // heap, instead of coming on top of it.
    malloc_trim(0);
    while (true) {
      absl::StatusOr<VersionPublished> published =
          engine_->Run(order->first, order->second);
      if (published.ok()) {
        metrics_.fold_seconds->Observe(
            absl::ToDoubleSeconds(options_.clock->Now() - begin));
        {
          MutexLock lock(&fold_mu_);
          if (!fold_trouble_.empty()) {
            DILOCO_LOG(INFO) << "the fold found disk space round="
                             << order->second.closed.round;
          }
          fold_trouble_.clear();
        }
        SubmitFold(*std::move(published));
        break;
      }
      if (!absl::IsResourceExhausted(published.status())) {
        return Fatal(published.status());
      }
      MakeRoom(FoldBytes());
      MutexLock lock(&fold_mu_);
      if (fold_trouble_.empty()) {
        DILOCO_LOG(ERROR) << "the fold waits for disk space round="
                          << order->second.closed.round << " error=\""
                          << published.status().message() << "\"";
      }
      fold_trouble_ = std::string(published.status().message());
      if (fold_stop_) return;
      fold_wake_.WaitFor(&fold_mu_, kFoldRetry);
      if (fold_stop_) return;
    }
  }
}

uint64_t CoordinatorImpl::FoldBytes() const {
  const int64_t elements = options_.layout.elements;
  return PartFileBytes(options_.settings.codec_down, elements) +
         2 * PartFileBytes(Codec::kFp32, elements);
}

uint64_t CoordinatorImpl::RoundBytes() const {
  uint64_t workers = 0;
  for (const auto& [name, worker] : sequencer_->state().workers) {
    if (worker.membership == Membership::kActive) ++workers;
  }
  return std::max<uint64_t>(1, workers) *
             PartFileBytes(sequencer_->policy().codec_up,
                           options_.layout.elements) +
         FoldBytes();
}

void CoordinatorImpl::ReadFreeBytes() {
  const Instant now = options_.clock->Now();
  if (free_read_at_.has_value() && now - *free_read_at_ < kFreeEvery) return;
  const absl::StatusOr<uint64_t> free =
      options_.fs->FreeBytes(options_.state_dir);
  // What cannot be said holds nobody up: writes tell.
  free_bytes_ = free.ok() ? *free : UINT64_MAX;
  free_read_at_ = now;
}

void CoordinatorImpl::RequestRoom(uint64_t free_bytes) {
  MutexLock lock(&fold_mu_);
  room_wanted_ = free_bytes;
  fold_wake_.Signal();
}

void CoordinatorImpl::MakeRoom(uint64_t free_bytes) {
  engine_->MakeRoom(
      [this, free_bytes] {
        const absl::StatusOr<uint64_t> free =
            options_.fs->FreeBytes(options_.state_dir);
        return !free.ok() || *free >= free_bytes;
      },
      options_.clock->Now());
}

std::string CoordinatorImpl::NoRoom() {
  const State& state = sequencer_->state();
  const uint64_t needed = RoundBytes();
  const uint64_t wanted = needed + options_.keep_free_bytes;
  bool making = false;  // Old files may still go.
  {
    MutexLock lock(&fold_mu_);
    if (disk_changed_) free_read_at_.reset();
    disk_changed_ = false;
    making = room_wanted_.has_value();
  }
  ReadFreeBytes();
  std::string no_room;
  if (free_bytes_ < wanted && !state.finished) {
    no_room = absl::StrCat("waiting for disk space: the files of a round need ",
                           needed, " bytes, keep.free_space ",
                           options_.keep_free_bytes, ", ", options_.state_dir,
                           " has ", free_bytes_, " free");
  }
  // A round that is open has its room, or its uploads wait for it. Of several
  // fragments one is always open.
  const bool between =
      state.fragments.size() > 1 ||
      std::none_of(state.fragments.begin(), state.fragments.end(),
                   [](const FragmentState& fragment) {
                     return fragment.open.has_value() ||
                            fragment.folding.has_value();
                   });
  const bool alarm = between && !no_room.empty();
  const Instant now = options_.clock->Now();
  if (!alarm && uploads_.trouble().empty()) {
    room_asked_at_.reset();
  } else if (!making && (!room_asked_at_.has_value() ||
                         now - *room_asked_at_ >= kFreeEvery)) {
    RequestRoom(wanted);
    making = true;
    room_asked_at_ = now;
  }
  MutexLock lock(&fold_mu_);
  // The alarm is for when that did not help.
  if (alarm && making && no_room_.empty()) return no_room;
  if (no_room_.empty() == alarm) {
    if (alarm) {
      DILOCO_LOG(ERROR) << "no round opens: " << no_room;
    } else {
      DILOCO_LOG(INFO) << "there is room for rounds again";
    }
  }
  no_room_ = alarm ? no_room : "";
  return no_room;
}

}  // namespace diloco

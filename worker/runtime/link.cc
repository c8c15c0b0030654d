#include "worker/runtime/link.h"

#include <algorithm>
#include <utility>

#include "common/base/backoff.h"
#include "common/base/logging.h"

namespace diloco {
namespace {

constexpr absl::Duration kStopPoll = absl::Milliseconds(100);
constexpr absl::Duration kWatchWait = absl::Seconds(20);
// Between two looks for a coordinator that is away. A look costs it nothing
// while it is, and all of its workers find it again within seconds.
constexpr absl::Duration kLongestPause = absl::Seconds(2);
// A leaving worker does not wait for a coordinator that is away for longer.
constexpr absl::Duration kShortAbsence = absl::Seconds(1);

// Codes that no waiting will mend.
bool IsFatal(const absl::Status& status) {
  return absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status) ||
         absl::IsFailedPrecondition(status);
}

}  // namespace

Link::Link(Options options) : options_(std::move(options)) {}

Link::~Link() { Stop(); }

void Link::Start() {
  watch_thread_ = options_.threads->Start([this] { WatchLoop(); });
  beat_thread_ = options_.threads->Start([this] { BeatLoop(); });
}

void Link::Stop() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
    LookAtTransfers();
    changed_.SignalAll();
  }
  if (watch_thread_ != nullptr) watch_thread_->Join();
  if (beat_thread_ != nullptr) beat_thread_->Join();
  watch_thread_.reset();
  beat_thread_.reset();
}

std::optional<RunView> Link::view() const {
  MutexLock lock(&mu_);
  return view_;
}

absl::Status Link::fatal() const {
  MutexLock lock(&mu_);
  return fatal_;
}

void Link::WaitForChange(uint64_t seen, absl::Duration timeout) {
  const Instant end = options_.clock->Now() + timeout;
  MutexLock lock(&mu_);
  if (ended_) {
    // Nothing comes any more; a caller that goes on must not spin.
    changed_.WaitFor(&mu_, timeout);
    return;
  }
  while (!stop_ && !ended_ && fatal_.ok() && !woken_ &&
         !(hand_in_by_.has_value() && !leaving_told_) &&
         !(view_.has_value() && view_->revision != seen)) {
    const absl::Duration left = end - options_.clock->Now();
    if (left <= absl::ZeroDuration()) return;
    changed_.WaitFor(&mu_, left);
  }
  woken_ = false;
}

std::optional<Instant> Link::hand_in_by() {
  MutexLock lock(&mu_);
  LookForLeaving();
  leaving_told_ = hand_in_by_.has_value();
  return hand_in_by_;
}

bool Link::away() const {
  MutexLock lock(&mu_);
  return ended_ || away_since_.has_value();
}

Link::Transfer::Transfer(Link* link, Kind kind, uint32_t fragment,
                         uint64_t base_version)
    : link_(link),
      kind_(kind),
      fragment_(fragment),
      base_version_(base_version) {
  MutexLock lock(&link_->mu_);
  link_->transfers_.insert(this);
  link_->LookForLeaving();
}

Link::Transfer::~Transfer() {
  MutexLock lock(&link_->mu_);
  link_->transfers_.erase(this);
}

void Link::Wake() {
  MutexLock lock(&mu_);
  woken_ = true;
  changed_.SignalAll();
}

bool Link::IsWanted(const Transfer& transfer) const {
  if (stop_ || !fatal_.ok()) return false;
  const bool moved_on =
      view_.has_value() && transfer.fragment_ < view_->fragments.size() &&
      view_->fragments[transfer.fragment_].version > transfer.base_version_;
  if (moved_on) return false;
  if (!hand_in_by_.has_value()) return true;
  const Instant now = options_.clock->Now();
  const bool away =
      away_since_.has_value() && now - *away_since_ >= kShortAbsence;
  return transfer.kind_ == Transfer::Kind::kUpload && now < *hand_in_by_ &&
         !away;
}

void Link::LookAtTransfers() {
  for (Transfer* transfer : transfers_) {
    if (!IsWanted(*transfer)) transfer->cancel_ = true;
  }
}

void Link::LookForLeaving() {
  const Instant now = options_.clock->Now();
  if (!hand_in_by_.has_value() &&
      (options_.stop_requested() || (view_.has_value() && view_->drain))) {
    hand_in_by_ = now + options_.hand_in_time;
    changed_.SignalAll();
  }
  LookAtTransfers();
}

void Link::SetProgress(const ProgressReport& report) {
  MutexLock lock(&mu_);
  progress_ = report;
}

void Link::BeatNow() {
  ProgressReport report;
  {
    MutexLock lock(&mu_);
    report = progress_;
  }
  const absl::StatusOr<uint64_t> revision = options_.port->Report(report);
  if (!revision.ok()) return OnError(revision.status());
  MutexLock lock(&mu_);
  NoteAnswer();
}

void Link::AddEval(uint64_t version, uint32_t slice, const LossSum& sum) {
  MutexLock lock(&mu_);
  if (version != eval_version_) evals_.clear();
  eval_version_ = version;
  evals_[slice] = sum;
  beat_now_ = true;
  changed_.SignalAll();
}

void Link::ReportEvals() {
  std::vector<std::pair<uint32_t, LossSum>> wanted;
  uint64_t version = 0;
  {
    MutexLock lock(&mu_);
    if (!view_.has_value()) return;
    version = eval_version_;
    for (const RunView::Eval& eval : view_->evals) {
      const auto found = evals_.find(eval.slice);
      if (eval.version == version && found != evals_.end()) {
        wanted.push_back(*found);
      }
    }
  }
  for (const auto& [slice, sum] : wanted) {
    const absl::Status status =
        options_.port->ReportEval(version, slice, sum.loss_sum, sum.tokens);
    if (absl::IsCancelled(status)) return;
    if (status.ok()) continue;
    DILOCO_LOG(INFO) << "evaluation not taken version=" << version
                     << " slice=" << slice << " error=\"" << status.message()
                     << "\"";
  }
}

void Link::NoteAnswer() {
  if (!away_since_.has_value()) return;
  away_since_.reset();
  DILOCO_LOG(INFO) << "the coordinator answers again";
}

void Link::OnView(RunView view) {
  MutexLock lock(&mu_);
  NoteAnswer();
  if (!view.notice.empty() &&
      (!view_.has_value() || view_->notice != view.notice)) {
    DILOCO_LOG(INFO) << "the coordinator says notice=\"" << view.notice << "\"";
  }
  view_ = std::move(view);
  LookForLeaving();
  changed_.SignalAll();
}

void Link::OnError(const absl::Status& status) {
  MutexLock lock(&mu_);
  if (stop_) return;
  if (absl::IsCancelled(status)) {
    ended_ = true;
    changed_.SignalAll();
    return;
  }
  if (IsFatal(status)) {
    if (fatal_.ok()) fatal_ = status;
    LookAtTransfers();
    changed_.SignalAll();
    return;
  }
  if (!away_since_.has_value()) {
    away_since_ = options_.clock->Now();
    DILOCO_LOG(WARNING) << "the coordinator does not answer; training goes on "
                           "to the end of the window error=\""
                        << status.message() << "\"";
  }
}

void Link::WatchLoop() {
  Backoff backoff({.max = kLongestPause});
  uint64_t known = 0;
  while (true) {
    const absl::StatusOr<RunView> view =
        options_.port->Watch(known, kWatchWait);
    if (view.ok()) {
      known = view->revision;
      backoff.Reset();
      OnView(*view);
    } else {
      OnError(view.status());
    }
    MutexLock lock(&mu_);
    if (stop_ || !fatal_.ok()) return;
    if (!view.ok()) {
      changed_.WaitFor(&mu_, backoff.Next(Draw(options_.random_bytes)));
      if (stop_) return;
    }
  }
}

void Link::BeatLoop() {
  while (true) {
    {
      MutexLock lock(&mu_);
      const Instant end = options_.clock->Now() + options_.beat_every;
      while (!stop_ && fatal_.ok() && !beat_now_) {
        const absl::Duration left = end - options_.clock->Now();
        if (left <= absl::ZeroDuration()) break;
        changed_.WaitFor(&mu_, std::min(left, kStopPoll));
        LookForLeaving();
      }
      if (stop_ || !fatal_.ok()) return;
      beat_now_ = false;
    }
    BeatNow();
    ReportEvals();
  }
}

}  // namespace diloco

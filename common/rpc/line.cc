#include "common/rpc/line.h"

#include <algorithm>
#include <cmath>

namespace diloco {
namespace {

constexpr double kBytesPerConnection = 2 << 20;

// Shorter waits are scheduling.
constexpr absl::Duration kWait = absl::Milliseconds(1);
constexpr absl::Duration kInterval = absl::Milliseconds(500);

// Of a call, beyond the way's own time.
constexpr absl::Duration kLate = absl::Milliseconds(100);
// On a faster line a queue of a MiB delays nobody: something else was late.
constexpr double kFastLine = 12.5e6;
// Of what the line carries; the rest drains the queue in front of it.
constexpr double kShare = 0.9;
constexpr double kRaise = 1.25;
// Of what was measured: the line has become faster, or something else was late.
constexpr double kUnpaced = 2;

}  // namespace

int ConnectionsFor(absl::Duration round_trip, double bytes_per_second) {
  const double on_the_way =
      bytes_per_second * absl::ToDoubleSeconds(round_trip);
  return static_cast<int>(
      std::clamp(std::ceil(on_the_way / kBytesPerConnection), 1.0,
                 static_cast<double>(kMaxConnections)));
}

Line::Line(Clock* clock, RateLimiter* limit)
    : clock_(clock), limit_(limit), bucket_(0, clock) {
  round_trips_.fill(absl::InfiniteDuration());
}

void Line::NoteRoundTrip(absl::Duration took) {
  MutexLock lock(&mu_);
  round_trips_[next_round_trip_] = took;
  next_round_trip_ = (next_round_trip_ + 1) % round_trips_.size();
  if (took >= RoundTrip() + kLate) {
    SetPace(rate_ < kFastLine ? kShare * rate_ : 0);
  } else if (pace_ > kUnpaced * rate_) {
    SetPace(0);
  } else {
    SetPace(kRaise * pace_);
  }
}

absl::Duration Line::RoundTrip() const {
  return *std::min_element(round_trips_.begin(), round_trips_.end());
}

void Line::SetPace(double pace) {
  pace_ = pace;
  bucket_.SetRate(static_cast<uint64_t>(pace));
}

void Line::Start() {
  MutexLock lock(&mu_);
  full_at_.reset();
}

void Line::Passed(uint64_t bytes, absl::Duration waited) {
  MutexLock lock(&mu_);
  const Instant now = clock_->Now();
  since_full_ += bytes;
  if (waited < kWait) return;
  if (!full_at_.has_value()) {
    full_at_ = now;
    since_full_ = 0;
  } else if (now - *full_at_ >= kInterval) {
    Measure(now);
  }
}

void Line::Measure(Instant now) {
  rate_ =
      static_cast<double>(since_full_) / absl::ToDoubleSeconds(now - *full_at_);
  full_at_ = now;
  since_full_ = 0;
  const absl::Duration round_trip = RoundTrip();
  // Never measured: nothing is known that asks for more.
  if (round_trip == absl::InfiniteDuration()) return;
  connections_ = ConnectionsFor(round_trip, rate_);
}

absl::Duration Line::Take(uint64_t bytes) {
  absl::Duration pause = bucket_.Take(bytes);
  if (limit_ != nullptr) pause = std::max(pause, limit_->Take(bytes));
  if (pause > absl::ZeroDuration()) {
    MutexLock lock(&mu_);
    full_at_.reset();
  }
  return pause;
}

uint64_t Line::MaxPiece() const {
  MutexLock lock(&mu_);
  return pace_ == 0
             ? ~0ull
             : static_cast<uint64_t>(pace_ * absl::ToDoubleSeconds(kLate) / 2);
}

int Line::connections() const {
  MutexLock lock(&mu_);
  return connections_;
}

void Line::SetUsed(size_t connections) {
  MutexLock lock(&mu_);
  used_ = connections;
}

size_t Line::used() const {
  MutexLock lock(&mu_);
  return used_;
}

double Line::bytes_per_second() const {
  MutexLock lock(&mu_);
  return rate_;
}

double Line::pace() const {
  MutexLock lock(&mu_);
  return pace_;
}

}  // namespace diloco

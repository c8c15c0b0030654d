// Exponential back-off with jitter for reconnecting. Pure: the random draw and
// the time are the caller's.
#ifndef COMMON_BASE_BACKOFF_H_
#define COMMON_BASE_BACKOFF_H_

#include "absl/time/time.h"

namespace diloco {

class Backoff {
 public:
  struct Options {
    absl::Duration initial = absl::Milliseconds(200);
    absl::Duration max = absl::Seconds(5);
    double factor = 2.0;
  };
  Backoff() : Backoff(Options{}) {}
  explicit Backoff(Options options)
      : options_(options), base_(options.initial) {}

  // The next pause, uniform in [base/2, base] by `draw` in [0, 1); the base
  // then grows by `factor` up to `max`.
  absl::Duration Next(double draw);
  void Reset() { base_ = options_.initial; }

 private:
  Options options_;
  absl::Duration base_;
};

}  // namespace diloco

#endif  // COMMON_BASE_BACKOFF_H_

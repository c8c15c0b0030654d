#include "common/base/backoff.h"

#include <algorithm>

namespace diloco {

absl::Duration Backoff::Next(double draw) {
  const absl::Duration pause = base_ * (0.5 + 0.5 * draw);
  base_ = std::min(base_ * options_.factor, options_.max);
  return pause;
}

}  // namespace diloco

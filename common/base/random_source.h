// Where a daemon's random numbers come from, as a seam: the operating system,
// or a seed in simulations.
#ifndef COMMON_BASE_RANDOM_SOURCE_H_
#define COMMON_BASE_RANDOM_SOURCE_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

#include "common/base/ids.h"

namespace diloco {

// RandomBytes, but in simulations.
using RandomSource = std::function<std::string(size_t bytes)>;

// Uniform in [0, 1).
inline double Draw(const RandomSource& source) {
  uint64_t bits = 0;
  std::memcpy(&bits, source(sizeof(bits)).data(), sizeof(bits));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace diloco

#endif  // COMMON_BASE_RANDOM_SOURCE_H_

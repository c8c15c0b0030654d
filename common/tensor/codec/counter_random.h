// Random bits for stochastic rounding that depend on nothing but (seed, stream,
// index): no state, so that neither the CPU path nor the order in which threads
// come changes them. 32-bit operations only, which vectorise everywhere.
//
// Mix is lowbias32 of C. Wellons' hash-prospector (public domain), the key is
// made by SplitMix64. Not for secrets.
#ifndef COMMON_TENSOR_CODEC_COUNTER_RANDOM_H_
#define COMMON_TENSOR_CODEC_COUNTER_RANDOM_H_

#include <cstdint>

#include "common/tensor/cpu_path.h"

namespace diloco::counter_random {

struct Key {
  uint32_t low = 0;
  uint32_t high = 0;
};

inline uint64_t SplitMix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

inline Key MakeKey(uint64_t seed, uint64_t stream) {
  const uint64_t mixed = SplitMix64(SplitMix64(seed) ^ stream);
  return {static_cast<uint32_t>(mixed), static_cast<uint32_t>(mixed >> 32)};
}

DILOCO_INLINE_BODY uint32_t Mix(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352d;
  x ^= x >> 15;
  x *= 0x846ca68b;
  x ^= x >> 16;
  return x;
}

// 32 bits for the value at `index`.
DILOCO_INLINE_BODY uint32_t Bits(const Key& key, uint32_t index) {
  return Mix(Mix(index + key.low) ^ key.high);
}

}  // namespace diloco::counter_random

#endif  // COMMON_TENSOR_CODEC_COUNTER_RANDOM_H_

// What the lossy codecs have in common: the largest magnitude of a block, which
// magnitudes they take, and rounding to an integer by one addition.
#ifndef COMMON_TENSOR_CODEC_BLOCK_SCALE_H_
#define COMMON_TENSOR_CODEC_BLOCK_SCALE_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "common/tensor/cpu_path.h"

namespace diloco::block_scale {

inline constexpr uint32_t kAbsMask = 0x7fffffff;
// A block without a magnitude from here on is zero, so that scales, their
// inverses and what is decoded are normal numbers.
inline constexpr float kSmallest = 0x1p-100f;
// A block with this magnitude or more, infinity or NaN decodes to NaN: who
// checks for finite values refuses it.
inline constexpr float kLimit = 0x1p120f;

DILOCO_INLINE_BODY uint32_t AbsBits(float value) {
  return std::bit_cast<uint32_t>(value) & kAbsMask;
}

// The bits of the largest |value|; above those of infinity when one is NaN.
DILOCO_INLINE_BODY uint32_t MaxAbsBits(const float* in, size_t n) {
  constexpr size_t kLanes = 16;
  // Signed: portable x86-64 has no other comparison.
  int32_t lanes[kLanes] = {};
  const size_t whole = n / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      const int32_t abs = static_cast<int32_t>(AbsBits(in[i + l]));
      lanes[l] = abs > lanes[l] ? abs : lanes[l];
    }
  }
  int32_t max = 0;
  for (size_t i = whole; i < n; ++i) {
    const int32_t abs = static_cast<int32_t>(AbsBits(in[i]));
    max = abs > max ? abs : max;
  }
  for (size_t l = 0; l < kLanes; ++l) max = lanes[l] > max ? lanes[l] : max;
  return static_cast<uint32_t>(max);
}

// Added to a float of magnitude up to 2^22, leaves the nearest integer, ties to
// even, in the low bits of the sum.
inline constexpr float kRound = 0x1.8p23f;

}  // namespace diloco::block_scale

#endif  // COMMON_TENSOR_CODEC_BLOCK_SCALE_H_

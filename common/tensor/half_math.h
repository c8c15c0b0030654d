// One value between float32 and the 16-bit formats, without branches so that
// loops over it vectorise. Integer operations and one exact or correctly
// rounded float32 addition, neither of which depends on how the CPU treats
// denormal operands. The definition of the formats: codec.cc also uses the
// conversion instructions of newer CPUs, which give the same bits, NaNs
// included. Others use codec.h.
#ifndef COMMON_TENSOR_HALF_MATH_H_
#define COMMON_TENSOR_HALF_MATH_H_

#include <bit>
#include <cstdint>

namespace diloco::half_math {

// Encoded values lie at any byte offset. Name the type of a pointer to it: with
// `auto` the attributes are lost.
using Unaligned16 [[gnu::aligned(1), gnu::may_alias]] = uint16_t;

static_assert(std::endian::native == std::endian::little,
              "the file formats are little endian, and values are copied");

// `a` where `condition` holds, else `b`. Computed rather than chosen: for a
// choice the compiler may branch around a float operation, and then it does not
// vectorise the loop.
__attribute__((always_inline)) inline uint32_t Select(bool condition,
                                                      uint32_t a, uint32_t b) {
  return b ^ ((a ^ b) & -static_cast<uint32_t>(condition));
}

__attribute__((always_inline)) inline uint16_t Fp16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t abs = bits & 0x7fffffff;
  // Exponent rebased, then 13 bits rounded off, ties to even; a carry moves to
  // the next exponent by itself.
  const uint32_t normal =
      (abs - (112u << 23) + 0xfff + ((abs >> 13) & 1)) >> 13;
  // 0.5 has the spacing of fp16's subnormals, 2^-24, as its last bit: the
  // addition rounds to it.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(abs) + 0.5f) - 0x3f000000;
  uint32_t half = Select(abs < 0x38800000, subnormal, normal);  // Below 2^-14.
  half = Select(abs >= 0x477ff000, 0x7c00, half);  // From 65520 on.
  const uint32_t quiet = 0x7e00 | ((abs >> 13) & 0x3ff);
  half = Select(abs > 0x7f800000, quiet, half);  // NaN.
  return static_cast<uint16_t>(sign | half);
}

__attribute__((always_inline)) inline float FloatFromFp16(uint16_t half) {
  const uint32_t bits = half;
  const uint32_t sign = (bits & 0x8000) << 16;
  const uint32_t shifted = (bits & 0x7fff) << 13;
  const uint32_t normal = shifted + (112u << 23);
  // 2^-14 * (1 + f) - 2^-14, exact.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(shifted + (113u << 23)) -
                              std::bit_cast<float>(113u << 23));
  uint32_t abs = Select(shifted < (1u << 23), subnormal, normal);
  // Infinity and NaN have the top exponent in both formats; a NaN gets quiet.
  abs += (112u << 23) & -static_cast<uint32_t>(shifted >= (31u << 23));
  abs |= (1u << 22) & -static_cast<uint32_t>(shifted > (31u << 23));
  return std::bit_cast<float>(sign | abs);
}

__attribute__((always_inline)) inline uint16_t Bf16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  // Rounding could carry a NaN's payload into the sign: make it quiet instead.
  const uint32_t quiet = (bits >> 16) | 0x40;
  return static_cast<uint16_t>(
      Select((bits & 0x7fffffff) > 0x7f800000, quiet, rounded));
}

__attribute__((always_inline)) inline float FloatFromBf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace diloco::half_math

#endif  // COMMON_TENSOR_HALF_MATH_H_

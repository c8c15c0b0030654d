// Encoding for the tests of codecs with scales.
#ifndef TESTS_UNIT_TENSOR_CODEC_TEST_UTIL_H_
#define TESTS_UNIT_TENSOR_CODEC_TEST_UTIL_H_

#include <cmath>
#include <string>
#include <vector>

#include "common/tensor/codec.h"
#include "common/tensor/codec/counter_random.h"

namespace diloco {

inline std::string Encoded(Codec codec, const std::vector<float>& values,
                           const Rounding& rounding = {},
                           CpuPath path = BestCpuPath()) {
  std::string bytes(EncodedBytes(codec, values.size()), '\x55');
  EncodeOnPath(path, codec, values, absl::MakeSpan(&bytes[0], bytes.size()),
               rounding);
  return bytes;
}

inline std::vector<float> Decoded(Codec codec, const std::string& bytes,
                                  size_t n, CpuPath path = BestCpuPath()) {
  std::vector<float> values(n);
  DecodeOnPath(path, codec, bytes, absl::MakeSpan(values));
  return values;
}

// Sums of four uniform values, of many magnitudes from block to block.
inline std::vector<float> Bells(size_t n, uint64_t seed = 1) {
  std::vector<float> values(n);
  const counter_random::Key key = counter_random::MakeKey(seed, 0);
  for (size_t i = 0; i < n; ++i) {
    float sum = -2;
    for (uint32_t k = 0; k < 4; ++k) {
      const auto at = static_cast<uint32_t>(4 * i + k);
      sum += static_cast<float>(counter_random::Bits(key, at) >> 8) * 0x1p-24f;
    }
    values[i] = std::ldexp(sum, -static_cast<int>(i / 256 % 20));
  }
  return values;
}

}  // namespace diloco

#endif  // TESTS_UNIT_TENSOR_CODEC_TEST_UTIL_H_

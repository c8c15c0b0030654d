// The loops of E3M0.
#include "common/tensor/codec/e3m0.h"

#include <algorithm>
#include <cstring>

#include "common/tensor/codec/block_scale.h"
#include "common/tensor/codec/counter_random.h"

namespace diloco::e3m0_codec {
namespace {

using counter_random::Key;

constexpr size_t kScaleBytes = 4;
constexpr size_t kBlockBytes = kScaleBytes + kCodecBlock / 2;
constexpr uint32_t kNanScale = 0x7fc00000;
// 2^6.5, rounded to nearest.
constexpr float kNearestSpan = 0x1.6a09e6p6f;
// 2^6: the largest level's value over the smallest one's.
constexpr float kStochasticSpan = 0x1p6f;

DILOCO_INLINE_BODY uint32_t Nearest(float value, float inverse) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const float r = std::bit_cast<float>(bits & block_scale::kAbsMask) * inverse;
  const int32_t level = (std::bit_cast<int32_t>(r) >> 23) - 126;
  const uint32_t sign = bits >> 31 << 3;
  // Zero has no sign.
  return level > 0 ? static_cast<uint32_t>(level) | sign : 0;
}

DILOCO_INLINE_BODY uint32_t Stochastic(float value, float inverse,
                                       uint32_t random) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const float r = std::bit_cast<float>(bits & block_scale::kAbsMask) * inverse;
  // From 1 on the mantissa is the share of the way to the next level, below 1
  // it is r, which is the mantissa of 1 + r: a random mantissa added to it
  // carries into the exponent with that probability.
  const bool above = r >= 1.0f;
  const float shifted = r + (above ? 0.0f : 1.0f);
  const int32_t carried =
      std::bit_cast<int32_t>(shifted) + static_cast<int32_t>(random >> 9);
  const int32_t level = std::min((carried >> 23) - (above ? 126 : 127), 7);
  const uint32_t sign = bits >> 31 << 3;
  return level > 0 ? static_cast<uint32_t>(level) | sign : 0;
}

template <bool kStochastic>
DILOCO_INLINE_BODY void EncodeBlock(const float* __restrict in, size_t n,
                                    uint32_t first, const Key& key,
                                    uint8_t* __restrict out) {
  uint32_t scale = block_scale::MaxAbsBits(in, n);
  if (scale < std::bit_cast<uint32_t>(block_scale::kSmallest)) scale = 0;
  if (scale >= std::bit_cast<uint32_t>(block_scale::kLimit)) scale = kNanScale;
  std::memcpy(out, &scale, kScaleBytes);
  uint8_t* __restrict codes = out + kScaleBytes;
  const size_t half = (n + 1) / 2;
  if (scale == 0 || scale == kNanScale) {
    std::memset(codes, 0, half);
    return;
  }
  const float inverse = (kStochastic ? kStochasticSpan : kNearestSpan) /
                        std::bit_cast<float>(scale);
  const auto code = [&](size_t i) __attribute__((always_inline)) {
    if constexpr (kStochastic) {
      return Stochastic(
          in[i], inverse,
          counter_random::Bits(key, first + static_cast<uint32_t>(i)));
    } else {
      return Nearest(in[i], inverse);
    }
  };
  const size_t pairs = n - half;
  for (size_t i = 0; i < pairs; ++i) {
    codes[i] = static_cast<uint8_t>(code(i) | code(i + half) << 4);
  }
  if (pairs < half) codes[pairs] = static_cast<uint8_t>(code(pairs));
}

template <bool kStochastic>
DILOCO_INLINE_BODY void EncodeAll(const float* in, size_t n, const Key& key,
                                  uint8_t* out) {
  size_t i = 0;
  for (; i + kCodecBlock <= n; i += kCodecBlock, out += kBlockBytes) {
    EncodeBlock<kStochastic>(in + i, kCodecBlock, static_cast<uint32_t>(i), key,
                             out);
  }
  if (i < n) {
    EncodeBlock<kStochastic>(in + i, n - i, static_cast<uint32_t>(i), key, out);
  }
}

DILOCO_INLINE_BODY void EncodeBody(const float* in, size_t n, uint8_t* out) {
  EncodeAll<false>(in, n, Key(), out);
}
DILOCO_DEFINE_PATHS(Encode, (const float* in, size_t n, uint8_t* out),
                    (in, n, out))

DILOCO_INLINE_BODY void EncodeStochasticBody(const float* in, size_t n,
                                             const Key& key, uint8_t* out) {
  EncodeAll<true>(in, n, key, out);
}
DILOCO_DEFINE_PATHS(EncodeStochastic,
                    (const float* in, size_t n, const Key& key, uint8_t* out),
                    (in, n, key, out))

DILOCO_INLINE_BODY float ValueOf(uint32_t nibble, float scale) {
  const uint32_t level = nibble & 7;
  // 2^(level - 7), or 0.
  const uint32_t power = level == 0 ? 0 : (level + 120) << 23;
  return std::bit_cast<float>(power | (nibble & 8) << 28) * scale;
}

DILOCO_INLINE_BODY float ScaleOf(const char* block) {
  float scale;
  std::memcpy(&scale, block, kScaleBytes);
  return scale;
}

DILOCO_INLINE_BODY void DecodeBlock(const char* __restrict in, size_t n,
                                    float* __restrict out) {
  const float scale = ScaleOf(in);
  const uint8_t* codes = reinterpret_cast<const uint8_t*>(in + kScaleBytes);
  const size_t half = (n + 1) / 2;
  for (size_t i = 0; i < half; ++i) out[i] = ValueOf(codes[i], scale);
  for (size_t i = half; i < n; ++i) {
    out[i] = ValueOf(static_cast<uint32_t>(codes[i - half]) >> 4, scale);
  }
}

DILOCO_INLINE_BODY void DecodeBody(const char* in, size_t n, float* out) {
  size_t i = 0;
  for (; i + kCodecBlock <= n; i += kCodecBlock, in += kBlockBytes) {
    DecodeBlock(in, kCodecBlock, out + i);
  }
  if (i < n) DecodeBlock(in, n - i, out + i);
}
DILOCO_DEFINE_PATHS(Decode, (const char* in, size_t n, float* out),
                    (in, n, out))

}  // namespace

size_t EncodedBytes(size_t elements) {
  const size_t rest = elements % kCodecBlock;
  return elements / kCodecBlock * kBlockBytes +
         (rest == 0 ? 0 : kScaleBytes + (rest + 1) / 2);
}

void Encode(CpuPath path, absl::Span<const float> in, absl::Span<char> out,
            const Rounding& rounding) {
  uint8_t* bytes = reinterpret_cast<uint8_t*>(out.data());
  if (!rounding.stochastic) {
    return EncodePaths[PathIndex(path)](in.data(), in.size(), bytes);
  }
  const Key key = counter_random::MakeKey(rounding.seed, rounding.stream);
  EncodeStochasticPaths[PathIndex(path)](in.data(), in.size(), key, bytes);
}

void Decode(CpuPath path, absl::Span<const char> in, absl::Span<float> out) {
  DecodePaths[PathIndex(path)](in.data(), out.size(), out.data());
}

std::optional<BadScale> FindBadScale(absl::Span<const char> in,
                                     size_t elements) {
  for (size_t i = 0; i < elements; i += kCodecBlock) {
    const float scale = ScaleOf(in.data() + i / kCodecBlock * kBlockBytes);
    const bool zero = std::bit_cast<uint32_t>(scale) == 0;
    // Also false for NaN.
    if (zero ||
        (scale >= block_scale::kSmallest && scale < block_scale::kLimit)) {
      continue;
    }
    return BadScale{i, scale};
  }
  return std::nullopt;
}

}  // namespace diloco::e3m0_codec

// The loops of int8 with block scales.
#include "common/tensor/codec/int8.h"

#include <algorithm>
#include <cstring>

#include "common/tensor/codec/block_scale.h"
#include "common/tensor/codec/counter_random.h"
#include "common/tensor/half_math.h"

namespace diloco::int8_codec {
namespace {

using counter_random::Key;

constexpr size_t kScaleBytes = 2;
constexpr size_t kBlockBytes = kScaleBytes + kCodecBlock;
constexpr uint16_t kNanScale = 0x7fc0;

DILOCO_INLINE_BODY uint16_t ScaleFor(uint32_t max_bits) {
  if (max_bits >= std::bit_cast<uint32_t>(block_scale::kLimit)) {
    return kNanScale;
  }
  if (max_bits < std::bit_cast<uint32_t>(block_scale::kSmallest)) return 0;
  const float scale = std::bit_cast<float>(max_bits) / 127.0f;
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(scale) + 0xffff) >> 16);
}

template <bool kStochastic>
DILOCO_INLINE_BODY void EncodeBlock(const float* __restrict in, size_t n,
                                    uint32_t first, const Key& key,
                                    uint8_t* __restrict out) {
  const uint16_t scale = ScaleFor(block_scale::MaxAbsBits(in, n));
  std::memcpy(out, &scale, kScaleBytes);
  uint8_t* __restrict codes = out + kScaleBytes;
  if (scale == 0 || scale == kNanScale) {
    std::memset(codes, 0, n);
    return;
  }
  const float inverse = 1.0f / half_math::FloatFromBf16(scale);
  for (size_t i = 0; i < n; ++i) {
    const float y = in[i] * inverse;
    const float sum = y + block_scale::kRound;
    int32_t code = std::bit_cast<int32_t>(sum) -
                   std::bit_cast<int32_t>(block_scale::kRound);
    if constexpr (kStochastic) {
      // What nearest leaves is exact, and so is the probability of one more or
      // one less.
      const float left = y - (sum - block_scale::kRound);
      const uint32_t bits =
          counter_random::Bits(key, first + static_cast<uint32_t>(i));
      const float u =
          static_cast<float>(static_cast<int32_t>(bits >> 8)) * 0x1p-24f;
      code += static_cast<int32_t>(left > u) - static_cast<int32_t>(-left > u);
      // The largest value of a block may be a little above 127 scales.
      code = std::min(std::max(code, -127), 127);
    }
    codes[i] = static_cast<uint8_t>(code);
  }
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

DILOCO_INLINE_BODY float ScaleOf(const char* block) {
  uint16_t scale;
  std::memcpy(&scale, block, kScaleBytes);
  return half_math::FloatFromBf16(scale);
}

DILOCO_INLINE_BODY void DecodeBlock(const char* __restrict in, size_t n,
                                    float* __restrict out) {
  const float scale = ScaleOf(in);
  const signed char* codes =
      reinterpret_cast<const signed char*>(in + kScaleBytes);
  for (size_t i = 0; i < n; ++i) {
    out[i] = static_cast<float>(static_cast<int32_t>(codes[i])) * scale;
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
  return elements + (elements + kCodecBlock - 1) / kCodecBlock * kScaleBytes;
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
  // 127 is less than 2^7, and the encoder rounds up.
  constexpr float kLeast = block_scale::kSmallest * 0x1p-7f;
  constexpr float kMost = block_scale::kLimit * 0x1p-6f;
  for (size_t i = 0; i < elements; i += kCodecBlock) {
    const float scale = ScaleOf(in.data() + i / kCodecBlock * kBlockBytes);
    const bool zero = std::bit_cast<uint32_t>(scale) == 0;
    // Also false for NaN.
    if (zero || (scale >= kLeast && scale <= kMost)) continue;
    return BadScale{i, scale};
  }
  return std::nullopt;
}

}  // namespace diloco::int8_codec

// The bulk loops of the plain codecs, and the choice among all.
#include "common/tensor/codec.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/logging.h"
#include "common/tensor/codec/e3m0.h"
#include "common/tensor/codec/int8.h"
#include "common/tensor/codec/int8_buckets.h"
#include "common/tensor/cpu_path.h"
#include "common/tensor/half_math.h"

namespace diloco {
namespace {

using half_math::Unaligned16;

void EncodeFp16Portable(const float* in, size_t n, char* out) {
  Unaligned16* half = reinterpret_cast<Unaligned16*>(out);
  for (size_t i = 0; i < n; ++i) half[i] = half_math::Fp16FromFloat(in[i]);
}

void DecodeFp16Portable(const char* in, size_t n, float* out) {
  const Unaligned16* half = reinterpret_cast<const Unaligned16*>(in);
  for (size_t i = 0; i < n; ++i) out[i] = half_math::FloatFromFp16(half[i]);
}

#if defined(__x86_64__)
// The conversion instructions round to nearest even as told here, keep
// subnormals whatever the flush modes, and are several times as fast.
constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT;
// The forms without a mask draw a false warning from g++ 12.
constexpr __mmask16 kAll = 0xffff;

__attribute__((target("avx2,f16c"))) void EncodeFp16Avx2(const float* in,
                                                         size_t n, char* out) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(in + i), kNearestEven));
  }
  EncodeFp16Portable(in + i, n - i, out + 2 * i);
}

__attribute__((target("avx2,f16c"))) void DecodeFp16Avx2(const char* in,
                                                         size_t n, float* out) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(out + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(
                         reinterpret_cast<const __m128i*>(in + 2 * i))));
  }
  DecodeFp16Portable(in + 2 * i, n - i, out + i);
}

__attribute__((target("avx512f"))) void EncodeFp16Avx512(const float* in,
                                                         size_t n, char* out) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(out + 2 * i),
        _mm512_maskz_cvtps_ph(kAll, _mm512_loadu_ps(in + i), kNearestEven));
  }
  EncodeFp16Portable(in + i, n - i, out + 2 * i);
}

__attribute__((target("avx512f"))) void DecodeFp16Avx512(const char* in,
                                                         size_t n, float* out) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    _mm512_storeu_ps(
        out + i, _mm512_maskz_cvtph_ps(
                     kAll, _mm256_loadu_si256(
                               reinterpret_cast<const __m256i*>(in + 2 * i))));
  }
  DecodeFp16Portable(in + 2 * i, n - i, out + i);
}

constexpr void (*EncodeFp16Paths[])(const float*, size_t, char*) = {
    EncodeFp16Portable, EncodeFp16Avx2, EncodeFp16Avx512};
constexpr void (*DecodeFp16Paths[])(const char*, size_t, float*) = {
    DecodeFp16Portable, DecodeFp16Avx2, DecodeFp16Avx512};
#else
constexpr void (*EncodeFp16Paths[])(const float*, size_t,
                                    char*) = {EncodeFp16Portable};
constexpr void (*DecodeFp16Paths[])(const char*, size_t,
                                    float*) = {DecodeFp16Portable};
#endif

DILOCO_INLINE_BODY void EncodeBf16Body(const float* in, size_t n, char* out) {
  Unaligned16* half = reinterpret_cast<Unaligned16*>(out);
  for (size_t i = 0; i < n; ++i) half[i] = half_math::Bf16FromFloat(in[i]);
}
DILOCO_DEFINE_PATHS(EncodeBf16, (const float* in, size_t n, char* out),
                    (in, n, out))

DILOCO_INLINE_BODY void DecodeBf16Body(const char* in, size_t n, float* out) {
  const Unaligned16* half = reinterpret_cast<const Unaligned16*>(in);
  for (size_t i = 0; i < n; ++i) out[i] = half_math::FloatFromBf16(half[i]);
}
DILOCO_DEFINE_PATHS(DecodeBf16, (const char* in, size_t n, float* out),
                    (in, n, out))

}  // namespace

const char* CodecName(Codec codec) {
  switch (codec) {
    case Codec::kFp32:
      return "fp32";
    case Codec::kFp16:
      return "fp16";
    case Codec::kBf16:
      return "bf16";
    case Codec::kInt8:
      return "int8";
    case Codec::kInt8Buckets:
      return "int8_buckets";
    case Codec::kE3m0:
      return "e3m0";
  }
  return "unknown";
}

absl::StatusOr<Codec> ParseCodec(absl::string_view name) {
  for (Codec codec : kCodecs) {
    if (name == CodecName(codec)) return codec;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown codec \"", name, "\": use one of ",
                   absl::StrJoin(kCodecs, ", ", [](std::string* out, Codec c) {
                     absl::StrAppend(out, CodecName(c));
                   })));
}

absl::StatusOr<Codec> CodecFromId(uint32_t id) {
  for (Codec codec : kCodecs) {
    if (id == static_cast<uint32_t>(codec)) return codec;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown codec id ", id, ": this build knows ",
      absl::StrJoin(kCodecs, ", ", [](std::string* out, Codec c) {
        absl::StrAppend(out, static_cast<uint32_t>(c), " (", CodecName(c), ")");
      })));
}

bool IsPlain(Codec codec) {
  return codec == Codec::kFp32 || codec == Codec::kFp16 ||
         codec == Codec::kBf16;
}

size_t EncodedBytes(Codec codec, size_t elements) {
  switch (codec) {
    case Codec::kFp32:
      return elements * 4;
    case Codec::kFp16:
    case Codec::kBf16:
      return elements * 2;
    case Codec::kInt8:
      return int8_codec::EncodedBytes(elements);
    case Codec::kInt8Buckets:
      return int8_buckets_codec::EncodedBytes(elements);
    case Codec::kE3m0:
      return e3m0_codec::EncodedBytes(elements);
  }
  return 0;
}

void EncodeOnPath(CpuPath path, Codec codec, absl::Span<const float> in,
                  absl::Span<char> out, const Rounding& rounding) {
  DILOCO_CHECK(out.size() == EncodedBytes(codec, in.size()))
      << out.size() << " bytes for " << in.size() << " values";
  switch (codec) {
    case Codec::kFp32:
      if (!in.empty()) std::memcpy(out.data(), in.data(), out.size());
      return;
    case Codec::kFp16:
      return EncodeFp16Paths[PathIndex(path)](in.data(), in.size(), out.data());
    case Codec::kBf16:
      return EncodeBf16Paths[PathIndex(path)](in.data(), in.size(), out.data());
    case Codec::kInt8:
      return int8_codec::Encode(path, in, out, rounding);
    case Codec::kInt8Buckets:
      return int8_buckets_codec::Encode(path, in, out);
    case Codec::kE3m0:
      return e3m0_codec::Encode(path, in, out, rounding);
  }
}

void DecodeOnPath(CpuPath path, Codec codec, absl::Span<const char> in,
                  absl::Span<float> out) {
  DILOCO_CHECK(in.size() == EncodedBytes(codec, out.size()))
      << in.size() << " bytes for " << out.size() << " values";
  switch (codec) {
    case Codec::kFp32:
      if (!in.empty()) std::memcpy(out.data(), in.data(), in.size());
      return;
    case Codec::kFp16:
      return DecodeFp16Paths[PathIndex(path)](in.data(), out.size(),
                                              out.data());
    case Codec::kBf16:
      return DecodeBf16Paths[PathIndex(path)](in.data(), out.size(),
                                              out.data());
    case Codec::kInt8:
      return int8_codec::Decode(path, in, out);
    case Codec::kInt8Buckets:
      return int8_buckets_codec::DecodeRange(path, in, 0, out);
    case Codec::kE3m0:
      return e3m0_codec::Decode(path, in, out);
  }
}

void DecodeRangeOnPath(CpuPath path, Codec codec, absl::Span<const char> run,
                       size_t elements, size_t first, absl::Span<float> out) {
  DILOCO_CHECK(
      run.size() == EncodedBytes(codec, elements) && first % kCodecBlock == 0 &&
      first <= elements && out.size() <= elements - first &&
      (out.size() % kCodecBlock == 0 || out.size() == elements - first))
      << out.size() << " values from " << first << " of " << elements;
  if (codec == Codec::kInt8Buckets) {
    return int8_buckets_codec::DecodeRange(path, run, first, out);
  }
  DecodeOnPath(
      path, codec,
      run.subspan(EncodedBytes(codec, first), EncodedBytes(codec, out.size())),
      out);
}

std::optional<BadScale> FindBadScale(Codec codec, absl::Span<const char> run,
                                     size_t elements) {
  DILOCO_CHECK(run.size() == EncodedBytes(codec, elements));
  switch (codec) {
    case Codec::kFp32:
    case Codec::kFp16:
    case Codec::kBf16:
      return std::nullopt;
    case Codec::kInt8:
      return int8_codec::FindBadScale(run, elements);
    case Codec::kInt8Buckets:
      return int8_buckets_codec::FindBadScale(run);
    case Codec::kE3m0:
      return e3m0_codec::FindBadScale(run, elements);
  }
  return std::nullopt;
}

void Encode(Codec codec, absl::Span<const float> in, absl::Span<char> out,
            const Rounding& rounding) {
  EncodeOnPath(BestCpuPath(), codec, in, out, rounding);
}

void Decode(Codec codec, absl::Span<const char> in, absl::Span<float> out) {
  DecodeOnPath(BestCpuPath(), codec, in, out);
}

void DecodeRange(Codec codec, absl::Span<const char> run, size_t elements,
                 size_t first, absl::Span<float> out) {
  DecodeRangeOnPath(BestCpuPath(), codec, run, elements, first, out);
}

uint16_t Fp16FromFloat(float value) { return half_math::Fp16FromFloat(value); }
float FloatFromFp16(uint16_t bits) { return half_math::FloatFromFp16(bits); }
uint16_t Bf16FromFloat(float value) { return half_math::Bf16FromFloat(value); }
float FloatFromBf16(uint16_t bits) { return half_math::FloatFromBf16(bits); }

}  // namespace diloco

// The bulk loops of the fixed-size codecs.
#include "common/tensor/codec.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/tensor/cpu_path.h"
#include "common/tensor/half_math.h"

namespace diloco {
namespace {

using half_math::Unaligned16;

DILOCO_INLINE_BODY void EncodeFp16Body(const float* in, size_t n, char* out) {
  auto* half = reinterpret_cast<Unaligned16*>(out);
  for (size_t i = 0; i < n; ++i) half[i] = half_math::Fp16FromFloat(in[i]);
}
DILOCO_DEFINE_PATHS(EncodeFp16, (const float* in, size_t n, char* out),
                    (in, n, out))

DILOCO_INLINE_BODY void DecodeFp16Body(const char* in, size_t n, float* out) {
  const auto* half = reinterpret_cast<const Unaligned16*>(in);
  for (size_t i = 0; i < n; ++i) out[i] = half_math::FloatFromFp16(half[i]);
}
DILOCO_DEFINE_PATHS(DecodeFp16, (const char* in, size_t n, float* out),
                    (in, n, out))

DILOCO_INLINE_BODY void EncodeBf16Body(const float* in, size_t n, char* out) {
  auto* half = reinterpret_cast<Unaligned16*>(out);
  for (size_t i = 0; i < n; ++i) half[i] = half_math::Bf16FromFloat(in[i]);
}
DILOCO_DEFINE_PATHS(EncodeBf16, (const float* in, size_t n, char* out),
                    (in, n, out))

DILOCO_INLINE_BODY void DecodeBf16Body(const char* in, size_t n, float* out) {
  const auto* half = reinterpret_cast<const Unaligned16*>(in);
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
  }
  return "unknown";
}

absl::StatusOr<Codec> ParseCodec(absl::string_view name) {
  for (Codec codec : {Codec::kFp32, Codec::kFp16, Codec::kBf16}) {
    if (name == CodecName(codec)) return codec;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown codec \"", name, "\": use fp32, fp16 or bf16"));
}

absl::StatusOr<Codec> CodecFromId(uint32_t id) {
  for (Codec codec : {Codec::kFp32, Codec::kFp16, Codec::kBf16}) {
    if (id == static_cast<uint32_t>(codec)) return codec;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown codec id ", id,
                   ": this build knows 1 (fp32), 2 (fp16) and 3 "
                   "(bf16)"));
}

size_t EncodedBytes(Codec codec, size_t elements) {
  return elements * (codec == Codec::kFp32 ? 4 : 2);
}

void EncodeOnPath(CpuPath path, Codec codec, absl::Span<const float> in,
                  absl::Span<char> out) {
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
  }
}

void Encode(Codec codec, absl::Span<const float> in, absl::Span<char> out) {
  EncodeOnPath(BestCpuPath(), codec, in, out);
}

void Decode(Codec codec, absl::Span<const char> in, absl::Span<float> out) {
  DecodeOnPath(BestCpuPath(), codec, in, out);
}

uint16_t Fp16FromFloat(float value) { return half_math::Fp16FromFloat(value); }
float FloatFromFp16(uint16_t bits) { return half_math::FloatFromFp16(bits); }
uint16_t Bf16FromFloat(float value) { return half_math::Bf16FromFloat(value); }
float FloatFromBf16(uint16_t bits) { return half_math::FloatFromBf16(bits); }

}  // namespace diloco

// Encodings of a run of float32 values. The same bits on every CPU and at
// every optimisation level: integer and single IEEE operations only.
//
// Codec ids are on the wire and on disk: never renumber.
#ifndef COMMON_TENSOR_CODEC_H_
#define COMMON_TENSOR_CODEC_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/tensor/cpu_path.h"

namespace diloco {

enum class Codec : uint32_t { kFp32 = 1, kFp16 = 2, kBf16 = 3 };

const char* CodecName(Codec codec);
absl::StatusOr<Codec> ParseCodec(absl::string_view name);  // "fp16", ...
absl::StatusOr<Codec> CodecFromId(uint32_t id);            // From wire or disk.

// Bytes of `elements` encoded values (fixed per codec here).
size_t EncodedBytes(Codec codec, size_t elements);

// Round to nearest even, subnormals kept, overflow to infinity, any NaN to a
// NaN. `out` has exactly EncodedBytes(codec, in.size()) bytes; little endian.
void Encode(Codec codec, absl::Span<const float> in, absl::Span<char> out);
// `in` has exactly EncodedBytes(codec, out.size()) bytes.
void Decode(Codec codec, absl::Span<const char> in, absl::Span<float> out);

// The same on a path that this CPU has (tests compare them).
void EncodeOnPath(CpuPath path, Codec codec, absl::Span<const float> in,
                  absl::Span<char> out);
void DecodeOnPath(CpuPath path, Codec codec, absl::Span<const char> in,
                  absl::Span<float> out);

uint16_t Fp16FromFloat(float value);
float FloatFromFp16(uint16_t bits);
uint16_t Bf16FromFloat(float value);
float FloatFromBf16(uint16_t bits);

}  // namespace diloco

#endif  // COMMON_TENSOR_CODEC_H_

// Encodings of a run of float32 values: the one interface to all codecs. The
// same bits on every CPU and at every optimisation level: integer and single
// IEEE operations only. Grammar and rounding in README.md.
//
//   std::string bytes(EncodedBytes(codec, values.size()), '\0');
//   Encode(codec, values, absl::MakeSpan(&bytes[0], bytes.size()));
//   Decode(codec, bytes, absl::MakeSpan(values));
//
// Codec ids are on the wire and on disk: never renumber.
#ifndef COMMON_TENSOR_CODEC_H_
#define COMMON_TENSOR_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/tensor/cpu_path.h"

namespace diloco {

enum class Codec : uint32_t {
  kFp32 = 1,
  kFp16 = 2,
  kBf16 = 3,
  kInt8 = 4,         // codec/int8.h
  kInt8Buckets = 5,  // codec/int8_buckets.h
  kE3m0 = 6,         // codec/e3m0.h
};

inline constexpr Codec kCodecs[] = {Codec::kFp32, Codec::kFp16,
                                    Codec::kBf16, Codec::kInt8,
                                    Codec::kE3m0, Codec::kInt8Buckets};

// Values that share a scale in kInt8 and kE3m0; tensors are padded to it.
inline constexpr size_t kCodecBlock = 256;

const char* CodecName(Codec codec);
absl::StatusOr<Codec> ParseCodec(absl::string_view name);  // "fp16", ...
absl::StatusOr<Codec> CodecFromId(uint32_t id);            // From wire or disk.

// Each value alone and of one width: fp32, fp16, bf16. The others have scales.
bool IsPlain(Codec codec);
// Bytes of a run of `elements` encoded values. Those of two runs add up to
// those of the joined run for plain codecs, and for int8 and E3M0 when the
// first run has whole blocks.
size_t EncodedBytes(Codec codec, size_t elements);

// How int8 and E3M0 round; the other codecs always round to nearest.
struct Rounding {
  // To one of the two neighbours with the probability that makes the mean
  // right, from bits that depend on nothing but seed, stream and the value's
  // index in the run.
  bool stochastic = false;
  uint64_t seed = 0;
  uint64_t stream = 0;  // Another one for each run: the frame's number.
};

// `out` has exactly EncodedBytes(codec, in.size()) bytes; little endian. A run
// has less than 2^32 values.
// fp16, bf16: round to nearest even, subnormals kept, overflow to infinity, any
// NaN to a NaN. Those with scales: a NaN, an infinity or a magnitude from 2^120
// on makes its whole block (kInt8Buckets: the run) NaN; a block without a
// magnitude from 2^-100 on is zero.
void Encode(Codec codec, absl::Span<const float> in, absl::Span<char> out,
            const Rounding& rounding = {});
// `in` has exactly EncodedBytes(codec, out.size()) bytes, of any content.
void Decode(Codec codec, absl::Span<const char> in, absl::Span<float> out);
// The values from `first` on, a multiple of kCodecBlock, of a run of `elements`
// values; as many as `out` has: a multiple of kCodecBlock or all that follow.
void DecodeRange(Codec codec, absl::Span<const char> run, size_t elements,
                 size_t first, absl::Span<float> out);

// A scale that no encoder writes: negative, NaN, infinite, too small or large.
struct BadScale {
  size_t index =
      0;  // The block's first value; kInt8Buckets: the table's entry.
  float scale = 0;
};
// The first one in a run that Encode could not have written; none in plain
// codecs.
std::optional<BadScale> FindBadScale(Codec codec, absl::Span<const char> run,
                                     size_t elements);

// The same on a path that this CPU has (tests compare them).
void EncodeOnPath(CpuPath path, Codec codec, absl::Span<const float> in,
                  absl::Span<char> out, const Rounding& rounding = {});
void DecodeOnPath(CpuPath path, Codec codec, absl::Span<const char> in,
                  absl::Span<float> out);
void DecodeRangeOnPath(CpuPath path, Codec codec, absl::Span<const char> run,
                       size_t elements, size_t first, absl::Span<float> out);

uint16_t Fp16FromFloat(float value);
float FloatFromFp16(uint16_t bits);
uint16_t Bf16FromFloat(float value);
float FloatFromBf16(uint16_t bits);

}  // namespace diloco

#endif  // COMMON_TENSOR_CODEC_H_

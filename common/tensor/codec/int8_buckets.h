// 8 bits a value with a table of bucket means for each run: 256 equal buckets
// over the mean plus and minus three standard deviations, outliers in the two
// at the ends; a bucket decodes to the mean of its members. The scheme of
// hivemind's uniform quantiser and of INTELLECT-1's CCLoco, with the centring
// of the former. Used through codec.h.
//
//   run   = 256 x f32 bucket means | u8 codes, one a value
//   scale = 6 * std / 256        std with n - 1, about the mean
//   code  = (x - mean) / scale + 128 rounded to nearest even, 0 to 255
//   mean of a bucket without members: 0
// A run with a magnitude of 2^120 or more, infinity or NaN has a table of NaN;
// one with a deviation under 2^-100 has all values in bucket 128.
// Mean and deviation are double sums in 16 fixed lanes (value i in lane i mod
// 16), bucket sums in 4, added up in order. Always rounds to nearest: bucket
// means take out the bias that stochastic rounding is for.
#ifndef COMMON_TENSOR_CODEC_INT8_BUCKETS_H_
#define COMMON_TENSOR_CODEC_INT8_BUCKETS_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "common/tensor/codec.h"
#include "common/tensor/cpu_path.h"

namespace diloco::int8_buckets_codec {

inline constexpr size_t kBuckets = 256;

size_t EncodedBytes(size_t elements);
void Encode(CpuPath path, absl::Span<const float> in, absl::Span<char> out);
// Values from `first` on of a run.
void DecodeRange(CpuPath path, absl::Span<const char> run, size_t first,
                 absl::Span<float> out);
// The index is that of the table's entry.
std::optional<BadScale> FindBadScale(absl::Span<const char> in);

// The scheme with any number of buckets up to 256, as many as `means` has;
// codes[i] is that of in[i]. Returns the scale, NaN when a value is not finite
// or too large.
float Quantise(CpuPath path, absl::Span<const float> in,
               absl::Span<uint8_t> codes, absl::Span<float> means);

}  // namespace diloco::int8_buckets_codec

#endif  // COMMON_TENSOR_CODEC_INT8_BUCKETS_H_

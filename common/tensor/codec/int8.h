// int8 with a scale for each block of 256 values. Used through codec.h.
//
//   block = u16 scale (bf16) | int8 codes, one a value
//   scale = max |x| / 127, rounded up to bf16; 0 and NaN as block_scale.h says
//   code  = x * (1 / scale) rounded to nearest even, or stochastically; -127 to
//           127
//   value = code * scale, which is exact
#ifndef COMMON_TENSOR_CODEC_INT8_H_
#define COMMON_TENSOR_CODEC_INT8_H_

#include <cstddef>
#include <optional>

#include "absl/types/span.h"
#include "common/tensor/codec.h"
#include "common/tensor/cpu_path.h"

namespace diloco::int8_codec {

size_t EncodedBytes(size_t elements);
void Encode(CpuPath path, absl::Span<const float> in, absl::Span<char> out,
            const Rounding& rounding);
void Decode(CpuPath path, absl::Span<const char> in, absl::Span<float> out);
std::optional<BadScale> FindBadScale(absl::Span<const char> in,
                                     size_t elements);

}  // namespace diloco::int8_codec

#endif  // COMMON_TENSOR_CODEC_INT8_H_

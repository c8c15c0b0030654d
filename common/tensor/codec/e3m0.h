// 4 bits a value: sign, 3 bits of exponent, no mantissa (E3M0), with a scale
// for each block of 256 values; 0.516 bytes a value. Used through codec.h.
//
// The format of Streaming DiLoCo's updates (arXiv 2501.18512; it names neither
// the granularity of scales nor the rounding; these are of the open Decoupled
// DiLoCo implementations):
//   block  = f32 scale | one byte for each two values
//            byte j of a block of n values has value j in its low half and
//            value j + ceil(n / 2), when there is one, in its high half
//   scale  = max |x|; 0 and NaN as block_scale.h says
//   nibble = sign << 3 | level
//   value  = 0 for level 0, else sign * 2^(level - 7) * scale
// Nearest is nearest in logarithm: level is the number of thresholds
// 2^(k - 7.5) * scale, k = 1 to 7, that |x| reaches, which are powers of two
// for r = |x| * (2^6.5 / scale): level = max(0, exponent(r) + 1). Stochastic
// rounding is between the two neighbours in value, so that the mean is x.
#ifndef COMMON_TENSOR_CODEC_E3M0_H_
#define COMMON_TENSOR_CODEC_E3M0_H_

#include <cstddef>
#include <optional>

#include "absl/types/span.h"
#include "common/tensor/codec.h"
#include "common/tensor/cpu_path.h"

namespace diloco::e3m0_codec {

size_t EncodedBytes(size_t elements);
void Encode(CpuPath path, absl::Span<const float> in, absl::Span<char> out,
            const Rounding& rounding);
void Decode(CpuPath path, absl::Span<const char> in, absl::Span<float> out);
std::optional<BadScale> FindBadScale(absl::Span<const char> in,
                                     size_t elements);

}  // namespace diloco::e3m0_codec

#endif  // COMMON_TENSOR_CODEC_E3M0_H_

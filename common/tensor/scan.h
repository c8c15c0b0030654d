// Largest magnitude (which tells finiteness too) and sum of squares of a run of
// values, for the screens of arriving updates and for norms. The same bits on
// every CPU: the sum has 16 fixed lanes (value i goes to lane i mod 16), added
// up in a fixed order.
#ifndef COMMON_TENSOR_SCAN_H_
#define COMMON_TENSOR_SCAN_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/tensor/codec.h"
#include "common/tensor/cpu_path.h"

namespace diloco {

// One thread at a time. Feed runs of values in order; all but the last have a
// multiple of 16 values.
class ValueScan {
 public:
  explicit ValueScan(CpuPath path = BestCpuPath()) : path_(path) {}

  void Add(absl::Span<const float> values);
  // A run of `elements` values.
  void AddEncoded(Codec codec, absl::Span<const char> run, size_t elements);

  // Infinity or NaN when a value is.
  float max_abs() const;
  double sum_squares() const;

 private:
  static constexpr int kLanes = 16;
  const CpuPath path_;
  uint32_t max_bits_ = 0;  // Of |value|; the order of floats is that of bits.
  double lanes_[kLanes] = {};
};

// The first value that is NaN or of a magnitude above `limit`; -1 when there is
// none.
int64_t FindBeyond(absl::Span<const float> values, float limit);

}  // namespace diloco

#endif  // COMMON_TENSOR_SCAN_H_

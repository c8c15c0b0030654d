// The scan loops; one pass over values in the first-level cache.
#include "common/tensor/scan.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace diloco {
namespace {

constexpr size_t kLanes = 16;
// Decoded at a time; a multiple of kLanes and of the codecs' block, and 16 KiB
// stay in the cache.
constexpr size_t kPiece = 4096;

DILOCO_INLINE_BODY void ScanBody(const float* values, size_t n,
                                 uint32_t* max_bits, double* lanes) {
  uint32_t max[kLanes] = {};
  double sum[kLanes];
  for (size_t l = 0; l < kLanes; ++l) sum[l] = lanes[l];
  const size_t whole = n / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      const uint32_t abs = std::bit_cast<uint32_t>(values[i + l]) & 0x7fffffff;
      max[l] = abs > max[l] ? abs : max[l];
    }
    for (size_t l = 0; l < kLanes; ++l) {
      const double x = values[i + l];
      sum[l] += x * x;  // The product of two float32 is exact.
    }
  }
  for (size_t i = whole; i < n; ++i) {
    const uint32_t abs = std::bit_cast<uint32_t>(values[i]) & 0x7fffffff;
    max[0] = abs > max[0] ? abs : max[0];
    const double x = values[i];
    sum[i - whole] += x * x;
  }
  for (size_t l = 0; l < kLanes; ++l) {
    lanes[l] = sum[l];
    *max_bits = max[l] > *max_bits ? max[l] : *max_bits;
  }
}
DILOCO_DEFINE_PATHS(Scan,
                    (const float* values, size_t n, uint32_t* max_bits,
                     double* lanes),
                    (values, n, max_bits, lanes))

}  // namespace

void ValueScan::Add(absl::Span<const float> values) {
  ScanPaths[PathIndex(path_)](values.data(), values.size(), &max_bits_, lanes_);
}

void ValueScan::AddEncoded(Codec codec, absl::Span<const char> run,
                           size_t elements) {
  float values[kPiece];
  for (size_t first = 0; first < elements; first += kPiece) {
    const absl::Span<float> piece =
        absl::MakeSpan(values, std::min(kPiece, elements - first));
    DecodeRangeOnPath(path_, codec, run, elements, first, piece);
    Add(piece);
  }
}

float ValueScan::max_abs() const { return std::bit_cast<float>(max_bits_); }

double ValueScan::sum_squares() const {
  double total = 0;
  for (double lane : lanes_) total += lane;
  return total;
}

int64_t FindBeyond(absl::Span<const float> values, float limit) {
  for (size_t i = 0; i < values.size(); ++i) {
    // Also false for NaN.
    if (std::fabs(values[i]) <= limit) continue;
    return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace diloco

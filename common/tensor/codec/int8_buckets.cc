// The loops of int8 with bucket means.
#include "common/tensor/codec/int8_buckets.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "common/base/logging.h"
#include "common/tensor/codec/block_scale.h"

namespace diloco::int8_buckets_codec {
namespace {

constexpr size_t kLanes = 16;
constexpr size_t kSumLanes = 4;
constexpr size_t kTableBytes = kBuckets * sizeof(float);

// Adds (value - centre)^power to the lanes, power 1 or 2.
template <bool kSquare>
DILOCO_INLINE_BODY void SumBody(const float* in, size_t n, double centre,
                                double* lanes) {
  double sum[kLanes] = {};
  const size_t whole = n / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      const double x = static_cast<double>(in[i + l]) - centre;
      sum[l] += kSquare ? x * x : x;
    }
  }
  for (size_t i = whole; i < n; ++i) {
    const double x = static_cast<double>(in[i]) - centre;
    sum[i - whole] += kSquare ? x * x : x;
  }
  for (size_t l = 0; l < kLanes; ++l) lanes[l] = sum[l];
}

DILOCO_INLINE_BODY void SumsBody(const float* in, size_t n, uint32_t* max_bits,
                                 double* lanes) {
  *max_bits = block_scale::MaxAbsBits(in, n);
  SumBody<false>(in, n, 0.0, lanes);
}
DILOCO_DEFINE_PATHS(Sums,
                    (const float* in, size_t n, uint32_t* max_bits,
                     double* lanes),
                    (in, n, max_bits, lanes))

DILOCO_INLINE_BODY void SquaresBody(const float* in, size_t n, double centre,
                                    double* lanes) {
  SumBody<true>(in, n, centre, lanes);
}
DILOCO_DEFINE_PATHS(Squares,
                    (const float* in, size_t n, double centre, double* lanes),
                    (in, n, centre, lanes))

DILOCO_INLINE_BODY void CodesBody(const float* __restrict in, size_t n,
                                  float mean, float inverse, float middle,
                                  float last, uint8_t* __restrict codes) {
  for (size_t i = 0; i < n; ++i) {
    float y = (in[i] - mean) * inverse + middle;
    y = y > 0.0f ? y : 0.0f;
    y = y < last ? y : last;
    const float sum = y + block_scale::kRound;
    codes[i] = static_cast<uint8_t>(std::bit_cast<uint32_t>(sum));
  }
}
DILOCO_DEFINE_PATHS(Codes,
                    (const float* in, size_t n, float mean, float inverse,
                     float middle, float last, uint8_t* codes),
                    (in, n, mean, inverse, middle, last, codes))

DILOCO_INLINE_BODY void LookUpBody(const uint8_t* __restrict codes, size_t n,
                                   const float* __restrict table,
                                   float* __restrict out) {
  for (size_t i = 0; i < n; ++i) out[i] = table[codes[i]];
}
DILOCO_DEFINE_PATHS(LookUp,
                    (const uint8_t* codes, size_t n, const float* table,
                     float* out),
                    (codes, n, table, out))

double Total(const double* lanes) {
  double total = 0;
  for (size_t l = 0; l < kLanes; ++l) total += lanes[l];
  return total;
}

void BucketMeans(absl::Span<const float> in, absl::Span<const uint8_t> codes,
                 absl::Span<float> means) {
  // Several lanes, so that values of one bucket in a row do not wait for each
  // other's sum.
  std::vector<double> sums(kSumLanes * kBuckets, 0.0);
  std::vector<uint64_t> counts(kSumLanes * kBuckets, 0);
  for (size_t i = 0; i < in.size(); ++i) {
    const size_t at = i % kSumLanes * kBuckets + codes[i];
    sums[at] += static_cast<double>(in[i]);
    ++counts[at];
  }
  for (size_t b = 0; b < means.size(); ++b) {
    double sum = 0;
    uint64_t count = 0;
    for (size_t l = 0; l < kSumLanes; ++l) {
      sum += sums[l * kBuckets + b];
      count += counts[l * kBuckets + b];
    }
    means[b] = count == 0
                   ? 0.0f
                   : static_cast<float>(sum / static_cast<double>(count));
  }
}

}  // namespace

float Quantise(CpuPath path, absl::Span<const float> in,
               absl::Span<uint8_t> codes, absl::Span<float> means) {
  DILOCO_CHECK(codes.size() == in.size() && means.size() <= kBuckets &&
               !means.empty());
  const size_t p = PathIndex(path);
  const double n = static_cast<double>(in.size());
  uint32_t max_bits = 0;
  double lanes[kLanes] = {};
  SumsPaths[p](in.data(), in.size(), &max_bits, lanes);
  if (max_bits >= std::bit_cast<uint32_t>(block_scale::kLimit)) {
    for (float& mean : means) mean = std::numeric_limits<float>::quiet_NaN();
    if (!codes.empty()) std::memset(codes.data(), 0, codes.size());
    return std::numeric_limits<float>::quiet_NaN();
  }
  const double mean = in.empty() ? 0.0 : Total(lanes) / n;
  SquaresPaths[p](in.data(), in.size(), mean, lanes);
  const double std = in.size() < 2 ? 0.0 : std::sqrt(Total(lanes) / (n - 1));
  const double scale = 6 * std / static_cast<double>(means.size());
  const float inverse = std < static_cast<double>(block_scale::kSmallest)
                            ? 0.0f
                            : static_cast<float>(1.0 / scale);
  CodesPaths[p](in.data(), in.size(), static_cast<float>(mean), inverse,
                static_cast<float>(means.size()) / 2,
                static_cast<float>(means.size() - 1), codes.data());
  BucketMeans(in, codes, means);
  return static_cast<float>(scale);
}

size_t EncodedBytes(size_t elements) {
  return elements == 0 ? 0 : kTableBytes + elements;
}

void Encode(CpuPath path, absl::Span<const float> in, absl::Span<char> out) {
  if (in.empty()) return;
  float means[kBuckets];
  Quantise(path, in,
           absl::MakeSpan(reinterpret_cast<uint8_t*>(out.data()) + kTableBytes,
                          in.size()),
           absl::MakeSpan(means));
  std::memcpy(out.data(), means, kTableBytes);
}

void DecodeRange(CpuPath path, absl::Span<const char> run, size_t first,
                 absl::Span<float> out) {
  if (out.empty()) return;
  float table[kBuckets];
  std::memcpy(table, run.data(), kTableBytes);
  LookUpPaths[PathIndex(path)](
      reinterpret_cast<const uint8_t*>(run.data()) + kTableBytes + first,
      out.size(), table, out.data());
}

std::optional<BadScale> FindBadScale(absl::Span<const char> in) {
  if (in.empty()) return std::nullopt;
  float table[kBuckets];
  std::memcpy(table, in.data(), kTableBytes);
  for (size_t i = 0; i < kBuckets; ++i) {
    // Also false for NaN.
    if (std::fabs(table[i]) < block_scale::kLimit) continue;
    return BadScale{i, table[i]};
  }
  return std::nullopt;
}

}  // namespace diloco::int8_buckets_codec

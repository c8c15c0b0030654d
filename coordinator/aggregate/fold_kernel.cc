// The fold in pieces that stay in the first-level cache: a few members' values
// are decoded, their weighted sums added up in double, and after the last
// members the sums become the outer step.
#include "coordinator/aggregate/fold_kernel.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/base/logging.h"

namespace diloco {
namespace {

// Values of a member at a time; a multiple of kLanes.
constexpr size_t kPiece = 256;
// Members decoded together: 8 KiB of values.
constexpr size_t kGroup = 8;
// Value i of a tile adds to sum of squares i mod 16.
constexpr size_t kLanes = 16;

struct Loops {
  void (*add_group)(const float* values, const double* weights, size_t members,
                    size_t n, double* sums);
  void (*step)(const double* sums, size_t n, double divisor,
               const OuterSettings& outer, float* momentum, float* change,
               double* lanes);
  void (*apply)(const float* change, size_t n, float* theta);
};

namespace portable {
#define FOLD_TARGET
#define FOLD_VECTOR_BYTES 16
#define FOLD_WIDEN(floats) __builtin_convertvector(floats, Doubles)
#include "coordinator/aggregate/fold_kernel_path.inc"
#undef FOLD_TARGET
#undef FOLD_VECTOR_BYTES
#undef FOLD_WIDEN
}  // namespace portable

#if defined(__x86_64__)
namespace avx2 {
#define FOLD_TARGET DILOCO_TARGET_AVX2
#define FOLD_VECTOR_BYTES 32
#define FOLD_WIDEN(floats) _mm256_cvtps_pd(floats)
#include "coordinator/aggregate/fold_kernel_path.inc"
#undef FOLD_TARGET
#undef FOLD_VECTOR_BYTES
#undef FOLD_WIDEN
}  // namespace avx2

namespace avx512 {
#define FOLD_TARGET DILOCO_TARGET_AVX512
#define FOLD_VECTOR_BYTES 64
#define FOLD_WIDEN(floats) _mm512_maskz_cvtps_pd(0xff, floats)
#include "coordinator/aggregate/fold_kernel_path.inc"
#undef FOLD_TARGET
#undef FOLD_VECTOR_BYTES
#undef FOLD_WIDEN
}  // namespace avx512

constexpr Loops kLoops[] = {portable::kLoops, avx2::kLoops, avx512::kLoops};
#else
constexpr Loops kLoops[] = {portable::kLoops};
#endif

// Asks for bytes that are needed one piece later. The processor's own
// prefetcher follows long streams; here every piece jumps between members.
void Prefetch(absl::Span<const char> bytes) {
  constexpr size_t kLine = 64;
  for (size_t i = 0; i < bytes.size(); i += kLine) {
    __builtin_prefetch(bytes.data() + i, 0, 2);
  }
}

// Adds n values from element `first` of up to kGroup inputs to `sums`.
void AddInputs(CpuPath path, absl::Span<const FoldInput> inputs, size_t first,
               size_t n, double* sums) {
  alignas(64) float values[kGroup * kPiece];
  double weights[kGroup];
  const size_t padded = (n + kLanes - 1) / kLanes * kLanes;
  for (size_t m = 0; m < inputs.size(); ++m) {
    const FoldInput& input = inputs[m];
    const absl::Span<const char> rest =
        input.bytes.subspan(EncodedBytes(input.codec, first));
    const size_t bytes = EncodedBytes(input.codec, n);
    Prefetch(rest.subspan(bytes, bytes));
    float* row = values + m * kPiece;
    DecodeOnPath(path, input.codec, rest.first(bytes), absl::MakeSpan(row, n));
    std::fill(row + n, row + padded, 0.0f);
    weights[m] = static_cast<double>(input.weight);
  }
  kLoops[PathIndex(path)].add_group(values, weights, inputs.size(), padded,
                                    sums);
}

// As the loop, for any `n` up to kPiece.
void Step(CpuPath path, const double* sums, size_t n, double divisor,
          const OuterSettings& outer, float* momentum, float* change,
          double* lanes) {
  const auto step = kLoops[PathIndex(path)].step;
  const size_t whole = n / kLanes * kLanes;
  step(sums, whole, divisor, outer, momentum, change, lanes);
  if (whole == n) return;
  // The rest, filled up with zeros: their sums are zero as well.
  float rest_momentum[kLanes] = {};
  float rest_change[kLanes];
  std::copy(momentum + whole, momentum + n, rest_momentum);
  step(sums + whole, kLanes, divisor, outer, rest_momentum, rest_change, lanes);
  std::copy_n(rest_momentum, n - whole, momentum + whole);
  std::copy_n(rest_change, n - whole, change + whole);
}

}  // namespace

double FoldTileOnPath(CpuPath path, absl::Span<const FoldInput> inputs,
                      const OuterSettings& outer, absl::Span<float> momentum,
                      absl::Span<float> change) {
  DILOCO_CHECK(change.size() == momentum.size())
      << change.size() << " and " << momentum.size();
  uint64_t total = 0;
  for (const FoldInput& input : inputs) {
    DILOCO_CHECK(input.bytes.size() ==
                 EncodedBytes(input.codec, momentum.size()))
        << input.bytes.size() << " bytes for " << momentum.size();
    DILOCO_CHECK(!__builtin_add_overflow(total, input.weight, &total));
  }
  DILOCO_CHECK(total > 0) << inputs.size() << " inputs";
  const double divisor = 1.0 / static_cast<double>(total);
  alignas(64) double sums[kPiece];
  double lanes[kLanes] = {};
  for (size_t first = 0; first < momentum.size(); first += kPiece) {
    const size_t n = std::min(kPiece, momentum.size() - first);
    std::fill_n(sums, kPiece, 0.0);
    for (size_t m = 0; m < inputs.size(); m += kGroup) {
      AddInputs(path, inputs.subspan(m, kGroup), first, n, sums);
    }
    Step(path, sums, n, divisor, outer, &momentum[first], &change[first],
         lanes);
  }
  double squares = 0;
  for (double lane : lanes) squares += lane;
  return squares;
}

double FoldTile(absl::Span<const FoldInput> inputs, const OuterSettings& outer,
                absl::Span<float> momentum, absl::Span<float> change) {
  return FoldTileOnPath(BestCpuPath(), inputs, outer, momentum, change);
}

void ApplyChangeOnPath(CpuPath path, absl::Span<const float> change,
                       absl::Span<float> theta) {
  DILOCO_CHECK(change.size() == theta.size())
      << change.size() << " and " << theta.size();
  kLoops[PathIndex(path)].apply(change.data(), change.size(), theta.data());
}

void ApplyChange(absl::Span<const float> change, absl::Span<float> theta) {
  ApplyChangeOnPath(BestCpuPath(), change, theta);
}

const char* FoldPathName() { return CpuPathName(BestCpuPath()); }

}  // namespace diloco

// The fold in pieces that stay in the first-level cache: the double sums of a
// piece are built up input by input, then turned into the outer step.
#include "coordinator/aggregate/fold_kernel.h"

#include <algorithm>

#include "common/base/logging.h"

namespace diloco {
namespace {

// 8 KiB of sums and 4 KiB of values; a multiple of kLanes.
constexpr size_t kPiece = 1024;
// Of the sum of squares: value i of a tile goes to lane i mod 16.
constexpr size_t kLanes = 16;

DILOCO_INLINE_BODY void AddBody(const float* values, size_t n, double weight,
                                double* sums) {
  for (size_t i = 0; i < n; ++i) {
    sums[i] += weight * static_cast<double>(values[i]);
  }
}
DILOCO_DEFINE_PATHS(Add,
                    (const float* values, size_t n, double weight,
                     double* sums),
                    (values, n, weight, sums))

DILOCO_INLINE_BODY void StepBody(const double* sums, size_t n, double divisor,
                                 const OuterSettings& outer,
                                 float* __restrict momentum,
                                 float* __restrict change, double* lanes) {
  const float lr = outer.lr;
  const float mu = outer.momentum;
  // One formula for both kinds, so that the loop has no branch: plain momentum
  // takes m itself, Nesterov the mean plus mu times m.
  const float mean_share = outer.nesterov ? 1.0f : 0.0f;
  const float momentum_share = outer.nesterov ? mu : 1.0f;
  for (size_t i = 0; i < n; ++i) {
    const float mean = static_cast<float>(sums[i] * divisor);
    const float m = mu * momentum[i] + mean;
    momentum[i] = m;
    change[i] = -(lr * (mean_share * mean + momentum_share * m));
  }
  double squares[kLanes];
  for (size_t l = 0; l < kLanes; ++l) squares[l] = lanes[l];
  const size_t whole = n / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      const double mean = static_cast<float>(sums[i + l] * divisor);
      squares[l] += mean * mean;
    }
  }
  for (size_t i = whole; i < n; ++i) {
    const double mean = static_cast<float>(sums[i] * divisor);
    squares[i - whole] += mean * mean;
  }
  for (size_t l = 0; l < kLanes; ++l) lanes[l] = squares[l];
}
DILOCO_DEFINE_PATHS(Step,
                    (const double* sums, size_t n, double divisor,
                     const OuterSettings& outer, float* momentum, float* change,
                     double* lanes),
                    (sums, n, divisor, outer, momentum, change, lanes))

DILOCO_INLINE_BODY void ApplyBody(const float* __restrict change, size_t n,
                                  float* __restrict theta) {
  for (size_t i = 0; i < n; ++i) theta[i] += change[i];
}
DILOCO_DEFINE_PATHS(Apply, (const float* change, size_t n, float* theta),
                    (change, n, theta))

// Asks for bytes that are needed one piece later. The processor's own
// prefetcher follows long streams; here every piece jumps between inputs.
void Prefetch(absl::Span<const char> bytes) {
  constexpr size_t kLine = 64;
  for (size_t i = 0; i < bytes.size(); i += kLine) {
    __builtin_prefetch(bytes.data() + i);
  }
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
  double sums[kPiece];
  float values[kPiece];
  double lanes[kLanes] = {};
  for (size_t first = 0; first < momentum.size(); first += kPiece) {
    const size_t n = std::min(kPiece, momentum.size() - first);
    std::fill_n(sums, n, 0.0);
    for (const FoldInput& input : inputs) {
      const size_t piece_bytes = EncodedBytes(input.codec, n);
      const absl::Span<const char> rest =
          input.bytes.subspan(EncodedBytes(input.codec, first));
      Prefetch(rest.subspan(piece_bytes, piece_bytes));
      DecodeOnPath(path, input.codec, rest.first(piece_bytes),
                   absl::MakeSpan(values, n));
      AddPaths[PathIndex(path)](values, n, static_cast<double>(input.weight),
                                sums);
    }
    StepPaths[PathIndex(path)](sums, n, divisor, outer, &momentum[first],
                               &change[first], lanes);
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
  ApplyPaths[PathIndex(path)](change.data(), change.size(), theta.data());
}

void ApplyChange(absl::Span<const float> change, absl::Span<float> theta) {
  ApplyChangeOnPath(BestCpuPath(), change, theta);
}

const char* FoldPathName() { return CpuPathName(BestCpuPath()); }

}  // namespace diloco

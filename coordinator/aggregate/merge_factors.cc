#include "coordinator/aggregate/merge_factors.h"

#include <algorithm>
#include <cmath>

#include "common/base/logging.h"

namespace diloco {
namespace {

std::vector<double> NormsOf(const GramMatrix& gram) {
  std::vector<double> norms;
  for (size_t i = 0; i < gram.size(); ++i) {
    norms.push_back(std::sqrt(gram.at(i, i)));
  }
  return norms;
}

std::vector<double> ClipToMedian(const GramMatrix& gram) {
  const std::vector<double> norms = NormsOf(gram);
  std::vector<double> sorted = norms;
  const auto middle =
      sorted.begin() + static_cast<ptrdiff_t>((sorted.size() - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  const double median = *middle;
  std::vector<double> factors;
  for (double norm : norms) {
    factors.push_back(norm <= median ? 1 : median / norm);
  }
  return factors;
}

std::vector<double> KeepRadius(absl::Span<const uint64_t> weights,
                               const GramMatrix& gram, double largest) {
  const std::vector<double> norms = NormsOf(gram);
  // The share of each member's unit vector in the mean direction.
  std::vector<double> shares(norms.size());
  double total = 0;
  for (uint64_t weight : weights) total += static_cast<double>(weight);
  double radius = 0;
  for (size_t i = 0; i < norms.size(); ++i) {
    const double share = static_cast<double>(weights[i]) / total;
    radius += share * norms[i];
    shares[i] = norms[i] > 0 ? share / norms[i] : 0;
  }
  double squares = 0;
  for (size_t i = 0; i < norms.size(); ++i) {
    for (size_t j = 0; j < norms.size(); ++j) {
      squares += shares[i] * shares[j] * gram.at(i, j);
    }
  }
  std::vector<double> factors(norms.size(), 0.0);
  if (!(squares > kLeastDirection * kLeastDirection)) return factors;
  const double scale = std::min(radius, largest) / std::sqrt(squares);
  for (size_t i = 0; i < norms.size(); ++i) {
    if (norms[i] > 0) factors[i] = scale / norms[i];
  }
  return factors;
}

}  // namespace

bool NeedsGram(MergeRule rule, const MergeTensor& tensor) {
  switch (rule) {
    case MergeRule::kMean:
      return false;
    case MergeRule::kNormClipped:
      return true;
    case MergeRule::kRadialDirectional:
      return !tensor.embedding;
  }
  return false;
}

GramPart GramPartOf(MergeRule rule) {
  return rule == MergeRule::kRadialDirectional ? GramPart::kAll
                                               : GramPart::kDiagonal;
}

std::vector<double> MergeFactors(MergeRule rule,
                                 absl::Span<const uint64_t> weights,
                                 const GramMatrix& gram, double largest) {
  DILOCO_CHECK(weights.size() == gram.size());
  switch (rule) {
    case MergeRule::kMean:
      break;
    case MergeRule::kNormClipped:
      return ClipToMedian(gram);
    case MergeRule::kRadialDirectional:
      return KeepRadius(weights, gram, largest);
  }
  return std::vector<double>(weights.size(), 1.0);
}

}  // namespace diloco

#include "coordinator/aggregate/gram.h"

#include "common/base/logging.h"

namespace diloco {
namespace {

constexpr size_t kGramLanes = 16;

DILOCO_INLINE_BODY void DotBody(const float* a, const float* b, size_t n,
                                double* sum) {
  double lanes[kGramLanes] = {};
  const size_t whole = n / kGramLanes * kGramLanes;
  for (size_t i = 0; i < whole; i += kGramLanes) {
    for (size_t l = 0; l < kGramLanes; ++l) {
      lanes[l] += static_cast<double>(a[i + l]) * static_cast<double>(b[i + l]);
    }
  }
  for (size_t i = whole; i < n; ++i) {
    lanes[i - whole] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  double total = 0;
  for (size_t l = 0; l < kGramLanes; ++l) total += lanes[l];
  *sum = total;
}
DILOCO_DEFINE_PATHS(Dot,
                    (const float* a, const float* b, size_t n, double* sum),
                    (a, b, n, sum))

}  // namespace

double DotOnPath(CpuPath path, absl::Span<const float> a,
                 absl::Span<const float> b) {
  DILOCO_CHECK(a.size() == b.size()) << a.size() << " and " << b.size();
  double sum = 0;
  DotPaths[PathIndex(path)](a.data(), b.data(), a.size(), &sum);
  return sum;
}

void AddGramOnPath(CpuPath path, absl::Span<const absl::Span<const float>> rows,
                   GramPart part, GramMatrix* gram) {
  DILOCO_CHECK(rows.size() == gram->size());
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = part == GramPart::kAll ? 0 : i; j <= i; ++j) {
      gram->at(i, j) += DotOnPath(path, rows[i], rows[j]);
    }
  }
}

void AddGram(absl::Span<const absl::Span<const float>> rows, GramPart part,
             GramMatrix* gram) {
  AddGramOnPath(BestCpuPath(), rows, part, gram);
}

}  // namespace diloco

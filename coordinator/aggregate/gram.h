// Inner products of the updates of a round over one tensor, from which merge
// rules take norms and angles. The same bits on every CPU, for any order in
// which the updates arrived: the product of two float32 is exact in double, 16
// fixed lanes add up a run (value i of it goes to lane i mod 16), and runs are
// added up in order. Used by gram_stage.cc; tests call single paths.
#ifndef COORDINATOR_AGGREGATE_GRAM_H_
#define COORDINATOR_AGGREGATE_GRAM_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/tensor/cpu_path.h"

namespace diloco {

// Symmetric; one triangle is kept.
class GramMatrix {
 public:
  explicit GramMatrix(size_t size)
      : size_(size), values_(size * (size + 1) / 2) {}

  size_t size() const { return size_; }
  double at(size_t i, size_t j) const { return values_[Index(i, j)]; }
  double& at(size_t i, size_t j) { return values_[Index(i, j)]; }

 private:
  static size_t Index(size_t i, size_t j) {
    if (i < j) std::swap(i, j);
    return i * (i + 1) / 2 + j;
  }

  size_t size_;
  std::vector<double> values_;
};

// Which of its entries a rule needs: norms alone are on the diagonal.
enum class GramPart { kDiagonal, kAll };

// The inner product of a run.
double DotOnPath(CpuPath path, absl::Span<const float> a,
                 absl::Span<const float> b);
// Adds those of a run: rows[i] holds the values of member i, all as many.
void AddGramOnPath(CpuPath path, absl::Span<const absl::Span<const float>> rows,
                   GramPart part, GramMatrix* gram);
void AddGram(absl::Span<const absl::Span<const float>> rows, GramPart part,
             GramMatrix* gram);

}  // namespace diloco

#endif  // COORDINATOR_AGGREGATE_GRAM_H_

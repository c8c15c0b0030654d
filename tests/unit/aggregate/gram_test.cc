// The Gram matrix: its arithmetic, and the same bits on every path.
#include "coordinator/aggregate/gram.h"

#include <random>
#include <vector>

#include "tests/support/catch.h"

namespace diloco {
namespace {

std::vector<float> RandomRow(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> row(n);
  for (float& value : row) {
    value = (static_cast<float>(random() >> 8) - 0x1p23f) * 0x1p-30f;
  }
  return row;
}

TEST_CASE("products of small integers are exact") {
  const std::vector<float> a = {1, 2, 3}, b = {4, -5, 6}, c = {0, 0, 0};
  const std::vector<absl::Span<const float>> rows = {a, b, c};
  GramMatrix gram(3);
  AddGram(rows, GramPart::kAll, &gram);
  CHECK(gram.at(0, 0) == 14);
  CHECK(gram.at(0, 1) == 12);
  CHECK(gram.at(1, 0) == 12);
  CHECK(gram.at(1, 1) == 77);
  CHECK(gram.at(2, 2) == 0);
  // Runs add up.
  AddGram(rows, GramPart::kAll, &gram);
  CHECK(gram.at(1, 0) == 24);
  GramMatrix norms(3);
  AddGram(rows, GramPart::kDiagonal, &norms);
  CHECK(norms.at(1, 1) == 77);
  CHECK(norms.at(1, 0) == 0);
}

TEST_CASE("16 lanes and every length, the same bits on every path") {
  for (size_t n : {1, 15, 16, 17, 255, 4096, 4099}) {
    const std::vector<float> a = RandomRow(n, 1), b = RandomRow(n, 2);
    double lanes[16] = {};
    for (size_t i = 0; i < n; ++i) {
      lanes[i % 16] += static_cast<double>(a[i]) * b[i];
    }
    double expected = 0;
    for (double lane : lanes) expected += lane;
    for (CpuPath path : kCpuPaths) {
      if (!CpuHasPath(path)) continue;
      CHECK(DotOnPath(path, a, b) == expected);
      CHECK(DotOnPath(path, b, a) == expected);
    }
  }
}

}  // namespace
}  // namespace diloco

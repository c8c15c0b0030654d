// Merge rules on vectors small enough to do by hand: the factors, and what the
// mean becomes with them.
#include "coordinator/aggregate/merge_factors.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "coordinator/aggregate/fold_kernel.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

using Rows = std::vector<std::vector<float>>;

GramMatrix GramOf(const Rows& rows, GramPart part = GramPart::kAll) {
  std::vector<absl::Span<const float>> spans(rows.begin(), rows.end());
  GramMatrix gram(rows.size());
  AddGram(spans, part, &gram);
  return gram;
}

// The merged update of one tensor, as the fold's kernel has it.
std::vector<float> Merge(MergeRule rule, const Rows& rows,
                         std::vector<uint64_t> weights = {},
                         double largest = 1e30) {
  weights.resize(rows.size(), 1);
  const std::vector<double> factors =
      MergeFactors(rule, weights, GramOf(rows, GramPartOf(rule)), largest);
  std::vector<FoldInput> inputs;
  for (size_t i = 0; i < rows.size(); ++i) {
    inputs.push_back(
        {Codec::kFp32,
         absl::MakeConstSpan(reinterpret_cast<const char*>(rows[i].data()),
                             4 * rows[i].size()),
         weights[i], factors[i]});
  }
  std::vector<float> momentum(rows[0].size()), change(rows[0].size());
  FoldTile(inputs, {1.0f, 0.0f, false}, absl::MakeSpan(momentum),
           absl::MakeSpan(change));
  return momentum;
}

double Norm(const std::vector<float>& values) {
  return std::sqrt(GramOf({values}).at(0, 0));
}

void CheckClose(const std::vector<float>& got,
                const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i] == Approx(expected[i]).epsilon(1e-4).margin(1e-7));
  }
}

TEST_CASE("the weighted mean of Flower's published vectors") {
  CheckClose(Merge(MergeRule::kMean,
                   {{1, 2, 3, 4, 5, 6}, {29, 23, 19, 17, 13, 11}}, {1, 2}),
             {19.6667, 16, 13.6667, 12.6667, 10.3333, 9.3333});
  CheckClose(Merge(MergeRule::kMean, {{7, 8, 9, 10}, {7, 5, 3, 2}}, {1, 2}),
             {7, 6, 5, 4.6667});
  CheckClose(Merge(MergeRule::kMean, {{1}, {3}}, {1, 2}), {7.0 / 3});
  // Token weights of two updates, and of three that are equally stale.
  CheckClose(Merge(MergeRule::kMean, {{1}, {0}}, {100, 50}), {2.0 / 3});
  CheckClose(Merge(MergeRule::kMean, {{1}, {0}}, {100, 100}), {0.5});
}

TEST_CASE("Flower's server momentum: heavy ball from zeros, three rounds") {
  const Rows replies = {{1, 2, 3, 4, 5, 6}, {29, 23, 19, 17, 13, 11}};
  const std::vector<std::vector<double>> expected = {
      {13.7666667, 11.2, 9.5666667, 8.8666667, 7.2333333, 6.5333333},
      {30.2866667, 24.64, 21.0466667, 19.5066667, 15.9133333, 14.3733333},
      {37.7206667, 30.688, 26.2126667, 24.2946667, 19.8193333, 17.9013333}};
  std::vector<float> theta(6), momentum(6), change(6);
  for (const std::vector<double>& after : expected) {
    std::vector<FoldInput> inputs;
    Rows deltas;
    for (const std::vector<float>& reply : replies) {
      std::vector<float> delta(6);
      for (size_t i = 0; i < 6; ++i) delta[i] = theta[i] - reply[i];
      deltas.push_back(delta);
    }
    for (size_t w = 0; w < deltas.size(); ++w) {
      inputs.push_back(
          {Codec::kFp32,
           absl::MakeConstSpan(reinterpret_cast<const char*>(deltas[w].data()),
                               24),
           w + 1});
    }
    FoldTile(inputs, {0.7f, 0.9f, false}, absl::MakeSpan(momentum),
             absl::MakeSpan(change));
    ApplyChange(change, absl::MakeSpan(theta));
    for (size_t i = 0; i < 6; ++i) {
      CHECK(theta[i] == Approx(after[i]).epsilon(2e-6));
    }
  }
}

TEST_CASE("a heavy ball and Nesterov on one parameter, published steps") {
  const auto run = [](std::vector<float> theta,
                      const std::vector<float>& gradient, bool nesterov,
                      int steps) {
    std::vector<float> momentum(theta.size()), change(theta.size());
    for (int step = 0; step < steps; ++step) {
      FoldTile(
          {{Codec::kFp32,
            absl::MakeConstSpan(reinterpret_cast<const char*>(gradient.data()),
                                4 * gradient.size())}},
          {0.1f, 0.9f, nesterov}, absl::MakeSpan(momentum),
          absl::MakeSpan(change));
      ApplyChange(change, absl::MakeSpan(theta));
    }
    return theta;
  };
  CheckClose(run({1, 2}, {0.5f, -0.5f}, false, 1), {0.95, 2.05});
  CheckClose(run({1, 2}, {0.5f, -0.5f}, false, 2), {0.855, 2.145});
  CheckClose(run({1}, {0.5f}, true, 1), {0.905});
}

TEST_CASE("a merge of [1,3] and [3,5] lies elementwise between the two") {
  for (MergeRule rule : {MergeRule::kMean, MergeRule::kNormClipped}) {
    for (uint64_t weight : {1, 2, 100}) {
      const std::vector<float> merged =
          Merge(rule, {{1, 3}, {3, 5}}, {1, weight});
      CHECK(merged[0] >= 1.0f);
      CHECK(merged[0] <= 3.0f);
      CHECK(merged[1] >= 3.0f * 0.9f);
      CHECK(merged[1] <= 5.0f);
    }
  }
}

TEST_CASE("norm_clipped: each update is clipped to the median norm") {
  // Norms 5, 10 and 50: the median is 10.
  const Rows rows = {{3, 4}, {10, 0}, {0, 50}};
  const std::vector<double> factors =
      MergeFactors(MergeRule::kNormClipped, std::vector<uint64_t>{1, 1, 1},
                   GramOf(rows, GramPart::kDiagonal), 1e30);
  CHECK(factors == std::vector<double>{1, 1, 0.2});
  CheckClose(Merge(MergeRule::kNormClipped, rows), {13.0 / 3, 14.0 / 3});
  // Of an even number it is the lower of the two in the middle.
  CheckClose(Merge(MergeRule::kNormClipped, {{1, 0}, {0, 1000}}), {0.5, 0.5});
}

TEST_CASE("norm_clipped: nobody above the median changes nothing") {
  const Rows rows = {{1, 2}, {2, 1}, {-1, 2}};
  CHECK(Merge(MergeRule::kNormClipped, rows, {5, 7, 11}) ==
        Merge(MergeRule::kMean, rows, {5, 7, 11}));
  CHECK(Merge(MergeRule::kNormClipped, {{0, 0}, {0, 0}}) ==
        std::vector<float>{0, 0});
}

TEST_CASE("C6.7 norm_clipped bounds what one of five can do") {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  Rows honest(4, std::vector<float>(600));
  for (auto& row : honest) {
    for (float& value : row) value = normal(random);
  }
  const std::vector<float> wanted = Merge(MergeRule::kMean, honest);
  Rows rows = honest;
  rows.push_back(honest[0]);
  for (float& value : rows[4]) value *= -1000;
  const auto distance = [&](const std::vector<float>& merged) {
    std::vector<float> off(merged.size());
    for (size_t i = 0; i < off.size(); ++i) off[i] = merged[i] - wanted[i];
    return Norm(off);
  };
  const double radius = Norm(honest[0]);
  // A fifth of what one honest update is, for the lie and for the share lost.
  CHECK(distance(Merge(MergeRule::kNormClipped, rows)) < 0.5 * radius);
  CHECK(distance(Merge(MergeRule::kMean, rows)) > 100 * radius);
}

TEST_CASE("radial_directional keeps the norm of orthogonal updates") {
  const std::vector<float> merged =
      Merge(MergeRule::kRadialDirectional,
            {{2, 0, 0, 0}, {0, 2, 0, 0}, {0, 0, 2, 0}, {0, 0, 0, 2}});
  CheckClose(merged, {1, 1, 1, 1});
  CHECK(Norm(merged) == Approx(2));
  CHECK(Norm(Merge(MergeRule::kMean,
                   {{2, 0, 0, 0}, {0, 2, 0, 0}, {0, 0, 2, 0}, {0, 0, 0, 2}})) ==
        Approx(1));
}

TEST_CASE("radial_directional is the formula, for unlike norms and weights") {
  const Rows rows = {{3, 4}, {-1, 0}, {0, 0}, {6, 8}};
  const std::vector<uint64_t> weights = {1, 2, 3, 4};
  // Radius (1*5 + 2*1 + 3*0 + 4*10) / 10 = 4.7; direction of
  // (1*(.6,.8) + 2*(-1,0) + 4*(.6,.8)) = (1, 4).
  const double length = std::sqrt(17.0);
  CheckClose(Merge(MergeRule::kRadialDirectional, rows, weights),
             {4.7 / length, 4.7 * 4 / length});
  // One update is taken as it is.
  CheckClose(Merge(MergeRule::kRadialDirectional, {{3, 4}}, {7}), {3, 4});
  // Weights count in both parts by their ratio alone.
  CheckClose(Merge(MergeRule::kRadialDirectional, rows, {10, 20, 30, 40}),
             {4.7 / length, 4.7 * 4 / length});
}

TEST_CASE("radial_directional: directions that cancel leave nothing") {
  CHECK(Merge(MergeRule::kRadialDirectional, {{1, -2}, {-1, 2}}) ==
        std::vector<float>{0, 0});
  CHECK(Merge(MergeRule::kRadialDirectional, {{0, 0}, {0, 0}}) ==
        std::vector<float>{0, 0});
  // Not even their rounding errors, blown up to the updates' norm.
  std::vector<float> one(501), other(501);
  for (size_t i = 0; i < one.size(); ++i) {
    one[i] = 0.1f * static_cast<float>(i % 17) + 0.01f;
    other[i] = -0.7f * one[i];
  }
  CHECK(Merge(MergeRule::kRadialDirectional, {one, other}) ==
        std::vector<float>(one.size(), 0.0f));
}

TEST_CASE("radial_directional does not go beyond what a fold can take") {
  CheckClose(Merge(MergeRule::kRadialDirectional, {{300, 400}}, {1}, 50),
             {30, 40});
}

TEST_CASE("who needs the matrix") {
  CHECK_FALSE(NeedsGram(MergeRule::kMean, {256, false}));
  CHECK(NeedsGram(MergeRule::kNormClipped, {256, true}));
  CHECK(NeedsGram(MergeRule::kRadialDirectional, {256, false}));
  CHECK_FALSE(NeedsGram(MergeRule::kRadialDirectional, {256, true}));
}

}  // namespace
}  // namespace diloco

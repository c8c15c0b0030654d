// C6.8: outer-loop series with a known inner loop, through FoldTile with fp32
// deltas. The expected numbers are those of the reference series O1, O3 (all
// variants), O4 and O5, computed in float64 with PyTorch's SGD formula; within
// 2e-6 relative here.
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "coordinator/aggregate/fold_kernel.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

using Point = std::vector<double>;

struct Series {
  std::vector<float> start;
  int interval = 0;  // Inner SGD steps (rate 0.1) between two outer steps.
  // Gradient of a worker at its local point.
  std::function<Point(int worker, const std::vector<float>& local)> gradient;
  std::vector<uint64_t> weights = {1, 1};
  OuterSettings outer;
  // Outer steps (from 0) in which worker 1 sends nothing.
  std::vector<int> missing;
  std::vector<Point> theta;     // After each outer step.
  std::vector<Point> momentum;  // Likewise; empty: not compared.
};

void CheckNear(const std::vector<float>& got, const Point& expected) {
  REQUIRE(got.size() == expected.size());
  double scale = 0;
  for (double value : expected) scale = std::max(scale, std::fabs(value));
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK(std::fabs(got[i] - expected[i]) <= 2e-6 * scale);
  }
}

void Run(const Series& series) {
  const size_t n = series.start.size();
  std::vector<float> theta = series.start;
  std::vector<float> momentum(n, 0.0f), change(n);
  for (size_t step = 0; step < series.theta.size(); ++step) {
    std::vector<std::vector<float>> deltas;
    std::vector<FoldInput> inputs;
    for (size_t worker = 0; worker < series.weights.size(); ++worker) {
      std::vector<float> local = theta;
      for (int t = 0; t < series.interval; ++t) {
        const Point gradient = series.gradient(static_cast<int>(worker), local);
        for (size_t i = 0; i < n; ++i) {
          local[i] -= static_cast<float>(0.1 * gradient[i]);
        }
      }
      std::vector<float> delta(n);
      for (size_t i = 0; i < n; ++i) delta[i] = theta[i] - local[i];
      deltas.push_back(delta);
    }
    for (size_t worker = 0; worker < deltas.size(); ++worker) {
      const bool silent =
          worker == 1 &&
          std::count(series.missing.begin(), series.missing.end(), step) > 0;
      if (silent) continue;
      inputs.push_back(
          {Codec::kFp32,
           absl::MakeConstSpan(
               reinterpret_cast<const char*>(deltas[worker].data()), 4 * n),
           series.weights[worker]});
    }
    FoldTile(inputs, series.outer, absl::MakeSpan(momentum),
             absl::MakeSpan(change));
    ApplyChange(change, absl::MakeSpan(theta));
    INFO("outer step " << step + 1);
    CheckNear(theta, series.theta[step]);
    if (!series.momentum.empty()) CheckNear(momentum, series.momentum[step]);
  }
}

Series Quadratic() {
  Series series;
  series.start = {0, 0};
  series.interval = 3;
  series.gradient = [](int worker, const std::vector<float>& local) -> Point {
    const double target[2][2] = {{1, 2}, {3, -2}};
    return {local[0] - target[worker][0], local[1] - target[worker][1]};
  };
  return series;
}

TEST_CASE("C6.8 O1: constant gradients, Nesterov") {
  Series series;
  series.start = {1};
  series.interval = 2;
  series.gradient = [](int worker, const std::vector<float>&) -> Point {
    return {worker == 0 ? 1.0 : -0.5};
  };
  series.theta = {{0.9335},    {0.83865},    {0.718285},
                  {0.5749565}, {0.41096085}, {0.228364765}};
  series.momentum = {{0.05},    {0.095},    {0.1355},
                     {0.17195}, {0.204755}, {0.2342795}};
  Run(series);
}

TEST_CASE("C6.8 O3: two quadratics, Nesterov") {
  Series series = Quadratic();
  series.theta = {{0.72086, 0},      {1.4892144302, 0}, {2.1464482881, 0},
                  {2.5979679834, 0}, {2.8138132251, 0}, {2.8168423158, 0},
                  {2.6640963534, 0}, {2.4267242272, 0}, {2.1726662708, 0},
                  {1.9546346334, 0}};
  // Not the momentum: it passes through zero here, where a relative limit says
  // nothing.
  Run(series);
}

TEST_CASE("C6.8 O3b: plain averaging is outer SGD with rate 1") {
  Series series = Quadratic();
  series.outer = {1.0f, 0.0f, true};
  series.theta = {{0.542, 0},
                  {0.937118, 0},
                  {1.225159022, 0},
                  {1.435140927, 0},
                  {1.5882177358, 0}};
  Run(series);
}

TEST_CASE("C6.8 O3c: heavy ball is not Nesterov") {
  Series series = Quadratic();
  series.outer.nesterov = false;
  series.theta = {{0.3794, 0},       {1.02828782, 0},   {1.7966206585, 0},
                  {2.5267012743, 0}, {3.0838585968, 0}, {3.3796922112, 0}};
  series.momentum = {{-0.542, 0},        {-0.9269826, 0},
                     {-1.0976183408, 0}, {-1.0429723082, 0},
                     {-0.7959390321, 0}, {-0.4226194491, 0}};
  Run(series);
}

TEST_CASE("C6.8 O4: weights 1 and 3") {
  Series series = Quadratic();
  series.weights = {1, 3};
  series.theta = {{0.901075, -0.36043},
                  {1.8615180377, -0.7446072151},
                  {2.6830603601, -1.0732241441},
                  {3.2474599793, -1.2989839917},
                  {3.5172665314, -1.4069066126}};
  series.momentum = {{-0.6775, 0.271},
                     {-1.043058675, 0.41722347},
                     {-1.1117814193, 0.4447125677},
                     {-0.9509939197, 0.3803975679},
                     {-0.6533328734, 0.2613331494}};
  Run(series);
}

TEST_CASE("C6.4 O5: a missing update, divisor by those that came") {
  Series series = Quadratic();
  series.missing = {2, 3};
  series.theta = {{0.72086, 0},
                  {1.4892144302, 0},
                  {1.7860182881, 0.72086},
                  {1.8533607683, 1.4892144302},
                  {2.1010190811, 1.4255882881},
                  {2.2624655392, 1.1087535532}};
  series.momentum = {{-0.542, 0},
                     {-0.83444694, 0},
                     {-0.6184251354, -0.542},
                     {-0.3435716658, -0.83444694},
                     {-0.348953731, -0.3474251354},
                     {-0.2866821869, 0.0736518042}};
  Run(series);
}

}  // namespace
}  // namespace diloco

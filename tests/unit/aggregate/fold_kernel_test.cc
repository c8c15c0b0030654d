// The arithmetic of the outer step against plain double-precision code and
// hand-made numbers.
#include "coordinator/aggregate/fold_kernel.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/support/catch.h"

namespace diloco {
namespace {

FoldInput Fp32(const std::vector<float>& delta, uint64_t weight = 1) {
  return {Codec::kFp32,
          absl::MakeConstSpan(reinterpret_cast<const char*>(delta.data()),
                              4 * delta.size()),
          weight};
}

// theta, momentum and the rounds they go through.
struct State {
  explicit State(std::vector<float> start)
      : theta(std::move(start)), momentum(theta.size()), change(theta.size()) {}
  double Fold(const std::vector<FoldInput>& inputs,
              const OuterSettings& outer) {
    const double squares = FoldTile(inputs, outer, absl::MakeSpan(momentum),
                                    absl::MakeSpan(change));
    ApplyChange(change, absl::MakeSpan(theta));
    return squares;
  }
  std::vector<float> theta, momentum, change;
};

// The reference in double: one element, one round.
void Reference(const std::vector<double>& deltas,
               const std::vector<double>& weights, double lr, double mu,
               bool nesterov, double* momentum, double* theta) {
  double sum = 0, total = 0;
  for (size_t i = 0; i < deltas.size(); ++i) {
    sum += weights[i] * deltas[i];
    total += weights[i];
  }
  const double mean = sum / total;
  *momentum = mu * *momentum + mean;
  *theta -= lr * (nesterov ? mean + mu * *momentum : *momentum);
}

TEST_CASE("C6.8 three scalars, four rounds, equal to the double reference") {
  const double deltas[4][3] = {
      {0.5, -0.25, 0.1}, {0.3, 0.2, -0.7}, {-0.05, 0.6, 0.9}, {1e-4, -2, 0.33}};
  for (float mu : {0.0f, 0.9f}) {
    for (bool nesterov : {true, false}) {
      for (uint64_t third : {1, 5}) {
        State state({1.0f});
        double theta = 1, momentum = 0;
        for (const auto& round : deltas) {
          std::vector<std::vector<float>> values;
          std::vector<double> rounded;
          for (double delta : round) {
            values.push_back({static_cast<float>(delta)});
            rounded.push_back(values.back()[0]);
          }
          state.Fold({Fp32(values[0]), Fp32(values[1]), Fp32(values[2], third)},
                     {0.7f, mu, nesterov});
          Reference(rounded, {1, 1, static_cast<double>(third)}, 0.7f, mu,
                    nesterov, &momentum, &theta);
          CHECK(state.theta[0] == Approx(theta).epsilon(2e-6));
          CHECK(state.momentum[0] == Approx(momentum).epsilon(2e-6));
        }
      }
    }
  }
}

TEST_CASE("C6.8 it is the mean, not the sum, and theta moves to the workers") {
  State state({1.0f, 1.0f});
  // Both workers went from 1 to 0.5 and 1.5: delta = start - local.
  const std::vector<float> delta = {0.5f, -0.5f};
  state.Fold({Fp32(delta), Fp32(delta)}, {1.0f, 0.0f, true});
  CHECK(state.theta == std::vector<float>{0.5f, 1.5f});
}

TEST_CASE("C6.8 momentum is kept between rounds, its factor changes theta") {
  const std::vector<float> delta = {1.0f};
  State state({0.0f});
  state.Fold({Fp32(delta)}, {1.0f, 0.5f, true});
  CHECK(state.momentum[0] == 1.0f);
  CHECK(state.theta[0] == -1.5f);
  state.Fold({Fp32(delta)}, {1.0f, 0.5f, true});
  CHECK(state.momentum[0] == 1.5f);
  CHECK(state.theta[0] == -1.5f - 1.75f);
  State heavy({0.0f});
  heavy.Fold({Fp32(delta)}, {1.0f, 0.5f, false});
  heavy.Fold({Fp32(delta)}, {1.0f, 0.5f, false});
  CHECK(heavy.theta[0] == -1.0f - 1.5f);
}

TEST_CASE("weights 1 and 3 make a weighted mean") {
  State state({0.0f});
  const std::vector<float> a = {4.0f}, b = {8.0f};
  state.Fold({Fp32(a, 1), Fp32(b, 3)}, {1.0f, 0.0f, true});
  CHECK(state.theta[0] == -7.0f);
  // Only the ratio counts.
  State scaled({0.0f});
  scaled.Fold({Fp32(a, 1000000), Fp32(b, 3000000)}, {1.0f, 0.0f, true});
  CHECK(scaled.theta == state.theta);
}

TEST_CASE("C6.4 a missing member is neither zero nor an old value") {
  const std::vector<float> a = {1.0f}, b = {4.0f}, c = {16.0f};
  const OuterSettings mean_only = {1.0f, 0.0f, true};
  State state({100.0f});
  state.Fold({Fp32(a), Fp32(b), Fp32(c)}, mean_only);
  CHECK(state.momentum[0] == 7.0f);
  CHECK(state.theta[0] == 93.0f);
  // Without c: not (1 + 4 + 0) / 3, and not (1 + 4 + 16) / 3 once more.
  state.Fold({Fp32(a), Fp32(b)}, mean_only);
  CHECK(state.momentum[0] == 2.5f);
  CHECK(state.theta[0] == 90.5f);
  // Likewise with weights: the divisor is the weight that is there.
  State weighted({100.0f});
  weighted.Fold({Fp32(a, 1), Fp32(c, 3)}, mean_only);
  CHECK(weighted.theta[0] == 100.0f - 12.25f);
}

TEST_CASE("k equal deltas fold as one, for any k and weights") {
  std::mt19937 random(5);
  std::vector<float> delta(3000);
  for (float& value : delta) {
    value = static_cast<float>(static_cast<int>(random()) % 100003) / 7e5f;
  }
  State one(std::vector<float>(delta.size(), 0.25f));
  one.Fold({Fp32(delta)}, OuterSettings());
  for (int k = 2; k <= 9; ++k) {
    State state(std::vector<float>(delta.size(), 0.25f));
    std::vector<FoldInput> inputs;
    for (int i = 0; i < k; ++i) inputs.push_back(Fp32(delta, 800 + 3 * i));
    state.Fold(inputs, OuterSettings());
    CHECK(state.theta == one.theta);
    CHECK(state.momentum == one.momentum);
  }
}

TEST_CASE("fp16 deltas of equal weight fold alike in any order") {
  constexpr size_t kKernelElements = 2000;
  constexpr size_t kMembers = 7;
  std::mt19937 random(6);
  std::vector<std::vector<uint16_t>> deltas(kMembers);
  std::vector<FoldInput> inputs;
  for (auto& delta : deltas) {
    for (size_t i = 0; i < kKernelElements; ++i) {
      // Any sign and mantissa; exponents of subnormals up to 2^14.
      const auto bits = static_cast<uint16_t>(random());
      delta.push_back((bits & 0x7c00) == 0x7c00 ? bits & 0x83ff : bits);
    }
    inputs.push_back(
        {Codec::kFp16,
         absl::MakeConstSpan(reinterpret_cast<const char*>(delta.data()),
                             2 * kKernelElements),
         512});
  }
  State first(std::vector<float>(kKernelElements, 0.0f));
  first.Fold(inputs, OuterSettings());
  for (int i = 0; i < 10; ++i) {
    std::shuffle(inputs.begin(), inputs.end(), random);
    State state(std::vector<float>(kKernelElements, 0.0f));
    state.Fold(inputs, OuterSettings());
    CHECK(state.theta == first.theta);
  }
}

TEST_CASE("a random fold is within 2e-6 of the double reference") {
  constexpr size_t kKernelElements = 1500;
  std::mt19937 random(7);
  std::vector<std::vector<float>> deltas(8,
                                         std::vector<float>(kKernelElements));
  State state(std::vector<float>(kKernelElements, 0.5f));
  std::vector<double> theta(kKernelElements, 0.5), momentum(kKernelElements, 0);
  for (int round = 0; round < 5; ++round) {
    std::vector<FoldInput> inputs;
    std::vector<double> weights;
    for (auto& delta : deltas) {
      for (float& value : delta) {
        value = static_cast<float>(random() % 20001) * 1e-6f - 0.002f;
      }
      weights.push_back(1 + random() % 5000);
      inputs.push_back(Fp32(delta, static_cast<uint64_t>(weights.back())));
    }
    double squares = state.Fold(inputs, OuterSettings());
    for (size_t i = 0; i < kKernelElements; ++i) {
      std::vector<double> column;
      for (const auto& delta : deltas) column.push_back(delta[i]);
      const double before = momentum[i];
      Reference(column, weights, 0.7f, 0.9f, true, &momentum[i], &theta[i]);
      const double mean = momentum[i] - 0.9f * static_cast<double>(before);
      squares -= mean * mean;
      REQUIRE(std::fabs(state.theta[i] - theta[i]) < 2e-6 * 0.5);
      REQUIRE(std::fabs(state.momentum[i] - momentum[i]) < 2e-6 * 0.01);
    }
    CHECK(std::fabs(squares) < 1e-6);
  }
}

TEST_CASE("tiles may have any length, in any codec, on every path") {
  for (size_t n : {1, 15, 16, 17, 31, 32, 33, 1023, 1024, 1025, 4100}) {
    std::vector<float> delta(n);
    for (size_t i = 0; i < n; ++i) {
      delta[i] = 0.375f + static_cast<float>(i % 7);
    }
    for (Codec codec : {Codec::kFp32, Codec::kFp16, Codec::kBf16}) {
      std::string encoded(EncodedBytes(codec, n), '\0');
      Encode(codec, delta, absl::MakeSpan(&encoded[0], encoded.size()));
      std::vector<float> decoded(n);
      Decode(codec, encoded, absl::MakeSpan(decoded));
      double expected = 0;
      for (float value : decoded)
        expected += static_cast<double>(value) * value;
      for (CpuPath path : kCpuPaths) {
        if (!CpuHasPath(path)) continue;
        std::vector<float> momentum(n, 0.0f), change(n);
        const std::vector<FoldInput> inputs(3, {codec, encoded, 5});
        const double squares =
            FoldTileOnPath(path, inputs, {1.0f, 0.0f, true},
                           absl::MakeSpan(momentum), absl::MakeSpan(change));
        CHECK(momentum == decoded);
        CHECK(squares == Approx(expected));
        size_t wrong = 0;
        for (size_t i = 0; i < n; ++i) wrong += change[i] != -decoded[i];
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("weights up to 2^63 keep their ratio") {
  State state({0.0f});
  const std::vector<float> a = {1.0f}, b = {3.0f};
  state.Fold({Fp32(a, uint64_t{1} << 62), Fp32(b, uint64_t{1} << 62)},
             {1.0f, 0.0f, true});
  CHECK(state.theta[0] == -2.0f);
}

}  // namespace
}  // namespace diloco

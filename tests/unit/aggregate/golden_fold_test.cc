// The golden fold: fixed inputs made from integers, four rounds, the digest of
// theta, momentum and change; and golden merge factors. Run on every path of
// this CPU, in the optimised build and, as unit_aggregate_o0, at -O0.
#include <bit>
#include <cstdio>
#include <string>
#include <vector>

#include "common/tensor/part_file.h"
#include "coordinator/aggregate/fold_kernel.h"
#include "coordinator/aggregate/merge_factors.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

constexpr size_t kGoldenElements = 5000;  // Several pieces and a rest.
constexpr int kMembers = 5;
constexpr int kRounds = 4;

// The digests that every CPU, path and optimisation level gives.
constexpr char kGoldenFp16[] =
    "2b69bf4b192501ca66e5262c4c579fa531a1c735b240408c1c89ac612bd12053";
constexpr char kGoldenFp32[] =
    "1df5d71203ea1363bd2ad467eccd79b8e1905df161d2df2cc5fc63f45083cfe1";
constexpr char kGoldenFactors[] =
    "ee5e235b70b6ff87348aca708a9b667eb286cdc21f261b9e603dcfa0ea023b20";

// 24-bit integers of a small generator, scaled by powers of two so that fp16
// sees ties, subnormals and all exponents.
class Source {
 public:
  explicit Source(uint32_t seed) : state_(seed) {}
  float Next() {
    state_ = state_ * 1664525 + 1013904223;
    const auto mantissa = static_cast<int32_t>(state_ >> 8) - (1 << 23);
    state_ = state_ * 1664525 + 1013904223;
    const uint32_t exponent = 127 - 23 - (state_ >> 27);
    return static_cast<float>(mantissa) * std::bit_cast<float>(exponent << 23);
  }

 private:
  uint32_t state_;
};

std::string GoldenFold(CpuPath path, Codec codec, bool nesterov) {
  Source source(1);
  std::vector<float> theta(kGoldenElements);
  for (float& value : theta) value = source.Next();
  std::vector<float> momentum(kGoldenElements, 0.0f);
  std::vector<float> change(kGoldenElements);
  std::vector<float> all;
  OuterSettings outer;
  outer.nesterov = nesterov;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::string> encoded(kMembers);
    std::vector<FoldInput> inputs;
    for (int member = 0; member < kMembers; ++member) {
      std::vector<float> delta(kGoldenElements);
      for (float& value : delta) value = source.Next();
      encoded[member].resize(EncodedBytes(codec, kGoldenElements));
      const absl::Span<char> bytes =
          absl::MakeSpan(&encoded[member][0], encoded[member].size());
      EncodeOnPath(path, codec, delta, bytes);
      inputs.push_back(
          {codec, bytes, static_cast<uint64_t>(1000 + 37 * member)});
    }
    const double squares = FoldTileOnPath(
        path, inputs, outer, absl::MakeSpan(momentum), absl::MakeSpan(change));
    ApplyChangeOnPath(path, change, absl::MakeSpan(theta));
    all.insert(all.end(), theta.begin(), theta.end());
    all.insert(all.end(), momentum.begin(), momentum.end());
    all.insert(all.end(), change.begin(), change.end());
    all.push_back(static_cast<float>(squares));
  }
  return DigestOfValues(all).ToHex();
}

TEST_CASE("the golden fold has the same digest on every path of this CPU") {
  for (CpuPath path : kCpuPaths) {
    if (!CpuHasPath(path)) {
      std::printf("this CPU lacks %s: not tested here\n", CpuPathName(path));
      continue;
    }
    INFO(CpuPathName(path));
    CHECK(GoldenFold(path, Codec::kFp16, true) == kGoldenFp16);
    CHECK(GoldenFold(path, Codec::kFp32, false) == kGoldenFp32);
  }
}

// All products of the members, in two runs, and the factors of each rule.
std::string GoldenFactors(CpuPath path) {
  Source source(2);
  std::vector<std::vector<float>> rows(kMembers);
  for (auto& row : rows) {
    for (size_t i = 0; i < kGoldenElements; ++i) row.push_back(source.Next());
  }
  GramMatrix gram(kMembers);
  for (const auto& [first, n] :
       {std::pair<size_t, size_t>{0, 4096}, {4096, kGoldenElements - 4096}}) {
    std::vector<absl::Span<const float>> run;
    for (const auto& row : rows) {
      run.push_back(absl::MakeConstSpan(row).subspan(first, n));
    }
    AddGramOnPath(path, run, GramPart::kAll, &gram);
  }
  std::vector<double> all;
  for (size_t i = 0; i < kMembers; ++i) {
    for (size_t j = 0; j <= i; ++j) all.push_back(gram.at(i, j));
  }
  for (MergeRule rule : kMergeRules) {
    for (double factor :
         MergeFactors(rule, std::vector<uint64_t>{5, 1, 4, 2, 3}, gram, 1e30)) {
      all.push_back(factor);
    }
  }
  return Sha256(absl::string_view(reinterpret_cast<const char*>(all.data()),
                                  all.size() * sizeof(double)))
      .ToHex();
}

TEST_CASE("the golden merge factors are the same on every path of this CPU") {
  for (CpuPath path : kCpuPaths) {
    if (!CpuHasPath(path)) continue;
    INFO(CpuPathName(path));
    CHECK(GoldenFactors(path) == kGoldenFactors);
  }
}

TEST_CASE("the golden digest depends on the rule of the fold") {
  // The digest would be useless if it did not depend on the data.
  CHECK(GoldenFold(CpuPath::kPortable, Codec::kFp16, false) != kGoldenFp16);
}

}  // namespace
}  // namespace diloco

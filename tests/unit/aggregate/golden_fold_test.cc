// The golden fold: fixed inputs made from integers, four rounds, the digest of
// theta, momentum and change. Run on every path of this CPU, in the optimised
// build and, as unit_aggregate_o0, at -O0.
#include <bit>
#include <cstdio>
#include <string>
#include <vector>

#include "common/tensor/part_file.h"
#include "coordinator/aggregate/fold_kernel.h"
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

TEST_CASE("the golden digest depends on the rule of the fold") {
  // The digest would be useless if it did not depend on the data.
  CHECK(GoldenFold(CpuPath::kPortable, Codec::kFp16, false) != kGoldenFp16);
}

}  // namespace
}  // namespace diloco

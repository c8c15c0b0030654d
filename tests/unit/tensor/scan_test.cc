// The value scan on every path that this CPU has.
#include "common/tensor/scan.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/catch.h"
#include "tests/unit/tensor/part_test_util.h"

namespace diloco {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();

TEST_CASE("scan figures are the same bits on every path and in any cut") {
  const std::vector<float> values = Values(70003);
  std::string fp16(EncodedBytes(Codec::kFp16, values.size()), '\0');
  Encode(Codec::kFp16, values, absl::MakeSpan(&fp16[0], fp16.size()));
  ValueScan first(CpuPath::kPortable);
  first.Add(values);
  ValueScan first16(CpuPath::kPortable);
  first16.AddEncoded(Codec::kFp16, fp16, values.size());
  CHECK(first.sum_squares() > 0);
  for (CpuPath path : kCpuPaths) {
    if (!CpuHasPath(path)) {
      WARN("this CPU lacks " << CpuPathName(path) << ": not tested here");
      continue;
    }
    ValueScan whole(path);
    whole.Add(values);
    CHECK(whole.sum_squares() == first.sum_squares());
    CHECK(whole.max_abs() == first.max_abs());
    ValueScan cut(path);
    cut.Add(absl::MakeConstSpan(values).first(16 * 100));
    cut.Add(absl::MakeConstSpan(values).subspan(16 * 100));
    CHECK(cut.sum_squares() == first.sum_squares());
    ValueScan encoded(path);
    encoded.AddEncoded(Codec::kFp16, fp16, values.size());
    CHECK(encoded.sum_squares() == first16.sum_squares());
    CHECK(encoded.max_abs() == first16.max_abs());
  }
}

TEST_CASE("one non-finite value anywhere is seen and found") {
  std::vector<float> values(100, -1.0f);
  for (size_t at : {0, 15, 16, 95, 96, 99}) {
    for (float bad : {std::numeric_limits<float>::quiet_NaN(),
                      std::numeric_limits<float>::infinity(),
                      -std::numeric_limits<float>::infinity()}) {
      std::vector<float> copy = values;
      copy[at] = bad;
      ValueScan scan;
      scan.Add(copy);
      CHECK(!std::isfinite(scan.max_abs()));
      CHECK(FindBeyond(copy, kLargest) == static_cast<int64_t>(at));
    }
  }
  ValueScan scan;
  scan.Add(values);
  CHECK(std::isfinite(scan.max_abs()));
  CHECK(scan.max_abs() == 1.0f);
  CHECK(FindBeyond(values, kLargest) == -1);
  CHECK(FindBeyond(values, 1.0f) == -1);
  CHECK(FindBeyond(values, 0.5f) == 0);
}

}  // namespace
}  // namespace diloco

#include "common/tensor/flat_math.h"

#include <limits>
#include <vector>

#include "tests/support/catch.h"
#include "tests/unit/tensor/part_test_util.h"

namespace diloco {
namespace {

TEST_CASE("mixing rounds each operation, with the same bits on every path") {
  const std::vector<float> local = Values(1003);
  std::vector<float> global = Values(2006);
  global.erase(global.begin(), global.begin() + 1003);
  for (const float mix : {0.25f, 0.5f, 0.3f}) {
    std::vector<float> wanted = local;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const volatile float mine = mix * local[i];
      const volatile float theirs = (1.0f - mix) * global[i];
      wanted[i] = mine + theirs;
    }
    for (const CpuPath path : kCpuPaths) {
      if (!CpuHasPath(path)) {
        WARN("this CPU lacks " << CpuPathName(path) << ": not tested here");
        continue;
      }
      std::vector<float> mixed = local;
      MixInto(mix, global, absl::MakeSpan(mixed), path);
      CHECK(mixed == wanted);
    }
  }
}

TEST_CASE("at mix 0 and 1 the other side does not count at all") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> local = {nan, 1.0f};
  MixInto(0, std::vector<float>{2.0f, 3.0f}, absl::MakeSpan(local));
  CHECK(local == std::vector<float>{2.0f, 3.0f});
  MixInto(1, std::vector<float>{nan, nan}, absl::MakeSpan(local));
  CHECK(local == std::vector<float>{2.0f, 3.0f});
}

}  // namespace
}  // namespace diloco

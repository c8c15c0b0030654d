#include "common/tensor/flat_math.h"

#include <algorithm>

#include "common/base/logging.h"

namespace diloco {
namespace {

DILOCO_INLINE_BODY void MixBody(float mix, const float* global, float* local,
                                size_t n) {
  const float rest = 1.0f - mix;
  for (size_t i = 0; i < n; ++i) {
    local[i] = mix * local[i] + rest * global[i];
  }
}

DILOCO_DEFINE_PATHS(Mix,
                    (float mix, const float* global, float* local, size_t n),
                    (mix, global, local, n))

}  // namespace

void MixInto(float mix, absl::Span<const float> global, absl::Span<float> local,
             CpuPath path) {
  DILOCO_CHECK(global.size() == local.size())
      << global.size() << " and " << local.size() << " values";
  if (mix == 1) return;
  if (mix == 0) {
    std::copy(global.begin(), global.end(), local.begin());
    return;
  }
  MixPaths[PathIndex(path)](mix, global.data(), local.data(), local.size());
}

}  // namespace diloco

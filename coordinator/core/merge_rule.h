// How the updates of a round become one: what a closed round records of it, so
// that its fold is the same when it is done again. The arithmetic is in
// coordinator/aggregate/merge_factors.h.
#ifndef COORDINATOR_CORE_MERGE_RULE_H_
#define COORDINATOR_CORE_MERGE_RULE_H_

#include <cstdint>

namespace diloco {

// On disk: never renumber.
enum class MergeRule : uint32_t {
  kMean = 0,               // Weighted; needs no look at the updates beforehand.
  kNormClipped = 1,        // Of updates clipped to their median norm.
  kRadialDirectional = 2,  // Mean norm times the direction of the mean
                           // direction.
};

inline constexpr MergeRule kMergeRules[] = {
    MergeRule::kMean, MergeRule::kNormClipped, MergeRule::kRadialDirectional};

// As in the run file.
constexpr const char* MergeRuleName(MergeRule rule) {
  switch (rule) {
    case MergeRule::kMean:
      return "mean";
    case MergeRule::kNormClipped:
      return "norm_clipped";
    case MergeRule::kRadialDirectional:
      return "radial_directional";
  }
  return "unknown";
}

// A tensor's part of its fragment, the padding behind it included.
struct MergeTensor {
  int64_t elements = 0;
  bool embedding = false;

  friend bool operator==(const MergeTensor&, const MergeTensor&) = default;
};

}  // namespace diloco

#endif  // COORDINATOR_CORE_MERGE_RULE_H_

// Which tensors of the model lie in which fragment. Coordinator and workers
// compute the same layout from the run's settings with this.
//
//   ASSIGN_OR_RETURN(Layout layout, ModelLayout(model, settings.fragments));
#ifndef COMMON_MODEL_FRAGMENTS_H_
#define COMMON_MODEL_FRAGMENTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/model_config.h"
#include "common/tensor/layout.h"

namespace diloco {

// Of L layers and P fragments:
//   whole        P = 1: all tensors
//   sequential   1 <= P <= L: layer l in fragment floor(l * P / L), the
//                embedding with the first, final norm and head with the last
//   strided      2 <= P <= L + 1: layer l in fragment l mod (P - 1);
//                embedding, final norm and head in the last one
//   balanced     1 <= P <= tensors: the largest tensor first, each into the
//                fragment that has the fewest bytes (the first of equals)
//   names        a list of P patterns: a tensor belongs to the first that
//                matches its name
enum class FragmentPattern { kWhole, kSequential, kStrided, kBalanced, kNames };
const char* FragmentPatternName(FragmentPattern pattern);

struct Fragmentation {
  FragmentPattern pattern = FragmentPattern::kWhole;
  uint32_t count = 1;  // P.
  // kNames only, one for each fragment: "*" stands for any characters, "|"
  // separates alternatives, as in "*.layers.0.*|*.layers.1.*".
  std::vector<std::string> names;

  friend bool operator==(const Fragmentation&, const Fragmentation&) = default;
};

// `tensors` (of ModelTensors, all in fragment 0) with their fragments.
// INVALID_ARGUMENT, with the allowed range, when the pattern cannot fill so
// many; for kNames also for a tensor that no pattern matches and for a pattern
// that gets none.
absl::StatusOr<std::vector<TensorDecl>> AssignFragments(
    std::vector<TensorDecl> tensors, const Fragmentation& fragmentation);

// The layout of a run.
absl::StatusOr<Layout> ModelLayout(const ModelConfig& model,
                                   const Fragmentation& fragmentation);

// The inner step after which fragment p of P is due for the first time, when
// each is due every `interval` steps: step t is where t mod interval equals
// floor(p * interval / P), so the first fragment's window is a whole one.
uint32_t FirstDueStep(uint32_t fragment, uint32_t fragments, uint32_t interval);

}  // namespace diloco

#endif  // COMMON_MODEL_FRAGMENTS_H_

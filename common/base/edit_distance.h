// How far a mistyped word is from a known one, for "did you mean". Used by the
// command lines and the config files.
#ifndef COMMON_BASE_EDIT_DISTANCE_H_
#define COMMON_BASE_EDIT_DISTANCE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace diloco {

// Insertions, deletions, substitutions and swaps of neighbours from a to b.
int EditDistance(absl::string_view a, absl::string_view b);

// The name closest to `name`; empty when none is near.
std::string NearestName(absl::string_view name,
                        const std::vector<std::string>& names);

}  // namespace diloco

#endif  // COMMON_BASE_EDIT_DISTANCE_H_

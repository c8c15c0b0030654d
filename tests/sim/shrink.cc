#include "tests/sim/shrink.h"

#include <algorithm>

namespace diloco::sim {

std::vector<size_t> Shrink(
    std::vector<size_t> all,
    const std::function<bool(const std::vector<size_t>&)>& fails) {
  if (!all.empty() && fails({})) return {};
  size_t parts = 2;
  while (all.size() >= 2) {
    bool less = false;
    for (size_t part = 0; part < parts && !less; ++part) {
      const size_t begin = all.size() * part / parts;
      const size_t end = all.size() * (part + 1) / parts;
      std::vector<size_t> rest(all.begin(),
                               all.begin() + static_cast<int64_t>(begin));
      rest.insert(rest.end(), all.begin() + static_cast<int64_t>(end),
                  all.end());
      if (rest.size() == all.size() || !fails(rest)) continue;
      all = std::move(rest);
      parts = std::max<size_t>(2, parts - 1);
      less = true;
    }
    if (less) continue;
    if (parts >= all.size()) break;
    parts = std::min(all.size(), 2 * parts);
  }
  return all;
}

}  // namespace diloco::sim

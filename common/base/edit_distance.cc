#include "common/base/edit_distance.h"

#include <algorithm>
#include <vector>

namespace diloco {

int EditDistance(absl::string_view a, absl::string_view b) {
  const size_t n = b.size();
  std::vector<int> before(n + 1), above(n + 1), row(n + 1);
  for (size_t j = 0; j <= n; ++j) above[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= n; ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1,
                         above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before = above;
    above = row;
  }
  return above[n];
}

std::string NearestName(absl::string_view name,
                        const std::vector<std::string>& names) {
  std::string best;
  int best_distance = 1 + std::max(2, static_cast<int>(name.size() / 3));
  for (const std::string& candidate : names) {
    const int distance = EditDistance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace diloco

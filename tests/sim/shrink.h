// The shortest list of faults that still breaks a run: delta debugging
// (Zeller's ddmin), then one by one.
#ifndef TESTS_SIM_SHRINK_H_
#define TESTS_SIM_SHRINK_H_

#include <cstddef>
#include <functional>
#include <vector>

namespace diloco::sim {

// `fails(all)` must hold. The result fails, and no longer does when any one of
// its entries is left out. Entries stay in order.
std::vector<size_t> Shrink(
    std::vector<size_t> all,
    const std::function<bool(const std::vector<size_t>&)>& fails);

}  // namespace diloco::sim

#endif  // TESTS_SIM_SHRINK_H_

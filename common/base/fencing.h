// Which life of which run a message belongs to (architecture: fencing). The
// coordinator makes it durable before it serves; workers persist the highest
// they saw. Same lineage and epoch with another nonce: two coordinators came
// alive on one state.
#ifndef COMMON_BASE_FENCING_H_
#define COMMON_BASE_FENCING_H_

#include <cstdint>
#include <string>

namespace diloco {

struct Fencing {
  std::string lineage;  // 16 bytes; empty: none seen yet.
  uint64_t epoch = 0;
  std::string boot_nonce;  // 8 bytes.

  friend bool operator==(const Fencing&, const Fencing&) = default;
};

}  // namespace diloco

#endif  // COMMON_BASE_FENCING_H_

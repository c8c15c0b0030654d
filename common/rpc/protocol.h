// The range of protocol versions that this build speaks, compared at join by
// both sides. The number grows when a message changes its meaning; an added
// optional thing gets a feature name instead.
#ifndef COMMON_RPC_PROTOCOL_H_
#define COMMON_RPC_PROTOCOL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace diloco {

struct ProtocolRange {
  uint32_t min = 0;
  uint32_t max = 0;
  std::vector<std::string> features;
};

// What this build speaks.
ProtocolRange OurProtocol();

// The highest version both sides speak. INVALID_ARGUMENT: `theirs` is no range;
// FAILED_PRECONDITION: nothing in common; the text names both sides, their
// builds and which one to update.
absl::StatusOr<uint32_t> AgreeOnProtocol(const ProtocolRange& ours,
                                         const ProtocolRange& theirs,
                                         const std::string& their_name,
                                         const std::string& their_build);

}  // namespace diloco

#endif  // COMMON_RPC_PROTOCOL_H_

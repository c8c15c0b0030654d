// Bounds that the worker's file and the flags of its tools share.
#ifndef WORKER_LIMITS_H_
#define WORKER_LIMITS_H_

#include <cstdint>

namespace diloco {

// More than any machine has; threads beyond it would exhaust the system.
inline constexpr uint32_t kMaxThreads = 1024;

}  // namespace diloco

#endif  // WORKER_LIMITS_H_

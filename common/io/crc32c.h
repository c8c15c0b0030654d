// CRC-32C (Castagnoli, RFC 3720 appendix B.4), the checksum of journal records,
// frames and wire chunks. Same value on every CPU; uses SSE 4.2 where present.
#ifndef COMMON_IO_CRC32C_H_
#define COMMON_IO_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace diloco {

// The checksum of the bytes that gave `crc` followed by `bytes`; start with 0.
uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes);
inline uint32_t Crc32c(absl::string_view bytes) {
  return ExtendCrc32c(0, bytes);
}

namespace crc32c_internal {
// The path of CPUs without SSE 4.2, so that tests reach it everywhere.
uint32_t ExtendByTable(uint32_t crc, absl::string_view bytes);
}  // namespace crc32c_internal

}  // namespace diloco

#endif  // COMMON_IO_CRC32C_H_

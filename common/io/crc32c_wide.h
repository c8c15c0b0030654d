// CRC-32C on CPUs with 512-bit carry-less multiplication: three times the speed
// of the crc32 instruction. Used by ExtendCrc32c for long inputs.
#ifndef COMMON_IO_CRC32C_WIDE_H_
#define COMMON_IO_CRC32C_WIDE_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace diloco {

// The shortest input, and what its size must be a multiple of.
inline constexpr size_t kWideCrcBytes = 256;

// Whether this CPU can; ExtendCrc32cWide may be called only then.
bool HasWideCrc32c();

// ExtendCrc32c for n * kWideCrcBytes bytes, n > 0.
uint32_t ExtendCrc32cWide(uint32_t crc, absl::string_view bytes);

}  // namespace diloco

#endif  // COMMON_IO_CRC32C_WIDE_H_

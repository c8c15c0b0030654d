// SHA-256 of up to sixteen inputs at once on CPUs with AVX-512: more than twice
// the speed of the SHA instructions, which take one round after the other. Used
// by BlockDigester, whose blocks are independent.
#ifndef COMMON_IO_SHA256_LANES_H_
#define COMMON_IO_SHA256_LANES_H_

#include <array>
#include <cstddef>

#include "common/io/digest.h"

namespace diloco {

inline constexpr size_t kSha256Lanes = 16;

// Whether this CPU can; Sha256Lanes may be called only then.
bool HasSha256Lanes();

// The SHA-256 of each of the `count` inputs (1 to kSha256Lanes; the time is
// that of all) that lie one behind the other at `first`. Each has `bytes`
// bytes, a multiple of 64. What stands behind the `count`th digest has no
// meaning.
std::array<Digest, kSha256Lanes> Sha256Lanes(const char* first, size_t bytes,
                                             size_t count);

}  // namespace diloco

#endif  // COMMON_IO_SHA256_LANES_H_

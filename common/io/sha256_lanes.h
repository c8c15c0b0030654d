// SHA-256 of eight inputs at once on CPUs with AVX-512: more than twice the
// speed of the SHA instructions, which take one round after the other. Used by
// BlockDigester, whose blocks are independent.
#ifndef COMMON_IO_SHA256_LANES_H_
#define COMMON_IO_SHA256_LANES_H_

#include <array>
#include <cstddef>

#include "common/io/digest.h"

namespace diloco {

inline constexpr size_t kSha256Lanes = 8;

// Whether this CPU can; Sha256Lanes may be called only then.
bool HasSha256Lanes();

// The SHA-256 of each of the inputs that lie one behind the other at `first`.
// Each has `bytes` bytes, a multiple of 64.
std::array<Digest, kSha256Lanes> Sha256Lanes(const char* first, size_t bytes);

}  // namespace diloco

#endif  // COMMON_IO_SHA256_LANES_H_

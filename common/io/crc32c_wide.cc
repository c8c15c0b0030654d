// Folding (Gopal et al., "Fast CRC Computation for Generic Polynomials Using
// PCLMULQDQ Instruction", Intel 2009) on four vectors of 64 bytes. A checksum
// is a remainder modulo P: 16 bytes whose value is A, D bits before others, may
// be replaced by anything that leaves the remainder of A * x^D, here by the sum
// of the products of A's halves with x^(D+32) and x^(D-32) modulo P. The bytes
// of the last 16 then have the same remainder as all and go through the crc32
// instruction.
#include "common/io/crc32c_wide.h"

#include "common/base/logging.h"

#if defined(__x86_64__)
// GCC 12 warns of its own intrinsics (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#endif

namespace diloco {

#if defined(__x86_64__)
namespace {

#define DILOCO_WIDE_TARGET \
  __attribute__((target("sse4.2,avx512f,avx512vl,vpclmulqdq,pclmul")))
#define DILOCO_WIDE_INLINE                                            \
  __attribute__((target("sse4.2,avx512f,avx512vl,vpclmulqdq,pclmul"), \
                 always_inline)) static inline

constexpr uint32_t kReflectedPolynomial = 0x82f63b78;  // Bit i is x^(31 - i).

// x^n modulo P as a factor: in the same order of bits, moved up by one because
// the product of two numbers in reversed order comes out one place too low.
constexpr uint64_t Power(int n) {
  uint32_t remainder = uint32_t{1} << 31;  // x^0.
  for (int i = 0; i < n; ++i) {
    remainder = (remainder >> 1) ^ ((remainder & 1) ? kReflectedPolynomial : 0);
  }
  return uint64_t{remainder} << 1;
}

// The two factors that move 16 bytes over `bits` bits.
struct Factors {
  uint64_t low, high;
};
constexpr Factors Over(int bits) {
  return {Power(bits + 32), Power(bits - 32)};
}

constexpr Factors kOver16 = Over(8 * 16);
constexpr Factors kOver64 = Over(8 * 64);
constexpr Factors kOver256 = Over(8 * 256);

DILOCO_WIDE_INLINE __m512i Wide(Factors f) {
  return _mm512_broadcast_i32x4(_mm_set_epi64x(static_cast<int64_t>(f.high),
                                               static_cast<int64_t>(f.low)));
}

// `next` and what `a` is behind it.
DILOCO_WIDE_INLINE __m512i Fold(__m512i a, __m512i factors, __m512i next) {
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, factors, 0x00),
                                   _mm512_clmulepi64_epi128(a, factors, 0x11),
                                   next, 0x96);
}

DILOCO_WIDE_INLINE __m128i Fold(__m128i a, __m128i factors, __m128i next) {
  return _mm_ternarylogic_epi64(_mm_clmulepi64_si128(a, factors, 0x00),
                                _mm_clmulepi64_si128(a, factors, 0x11), next,
                                0x96);
}

DILOCO_WIDE_INLINE __m512i Load(const char* p) {
  return _mm512_loadu_si512(reinterpret_cast<const __m512i*>(p));
}

DILOCO_WIDE_TARGET uint32_t Extend(uint32_t crc, absl::string_view bytes) {
  const char* p = bytes.data();
  __m512i a = _mm512_xor_si512(
      Load(p),
      _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(~crc))));
  __m512i b = Load(p + 64);
  __m512i c = Load(p + 128);
  __m512i d = Load(p + 192);
  const __m512i over256 = Wide(kOver256);
  for (size_t n = bytes.size() - 256; n > 0; n -= 256) {
    p += 256;
    a = Fold(a, over256, Load(p));
    b = Fold(b, over256, Load(p + 64));
    c = Fold(c, over256, Load(p + 128));
    d = Fold(d, over256, Load(p + 192));
  }
  const __m512i over64 = Wide(kOver64);
  d = Fold(Fold(Fold(a, over64, b), over64, c), over64, d);
  const __m128i over16 = _mm512_castsi512_si128(Wide(kOver16));
  __m128i last = _mm512_castsi512_si128(d);
  last = Fold(last, over16, _mm512_extracti32x4_epi32(d, 1));
  last = Fold(last, over16, _mm512_extracti32x4_epi32(d, 2));
  last = Fold(last, over16, _mm512_extracti32x4_epi32(d, 3));
  uint64_t rest = _mm_crc32_u64(0, _mm_extract_epi64(last, 0));
  rest = _mm_crc32_u64(rest, _mm_extract_epi64(last, 1));
  return ~static_cast<uint32_t>(rest);
}

}  // namespace

bool HasWideCrc32c() {
  static const bool has =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul");
  return has;
}

uint32_t ExtendCrc32cWide(uint32_t crc, absl::string_view bytes) {
  DILOCO_CHECK(!bytes.empty() && bytes.size() % kWideCrcBytes == 0);
  return Extend(crc, bytes);
}
#else
bool HasWideCrc32c() { return false; }

uint32_t ExtendCrc32cWide(uint32_t crc, absl::string_view) {
  DILOCO_CHECK(false) << "no such instructions";
  return crc;
}
#endif

}  // namespace diloco

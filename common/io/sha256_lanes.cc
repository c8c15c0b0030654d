// FIPS 180-4 with one 32-bit word of each input in each vector.
#include "common/io/sha256_lanes.h"

#include <algorithm>
#include <cstdint>

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

constexpr size_t kChunk = 64;

constexpr uint32_t kInitial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372,
                                  0xa54ff53a, 0x510e527f, 0x9b05688c,
                                  0x1f83d9ab, 0x5be0cd19};

constexpr uint32_t kRoundConstants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

#define DILOCO_LANES_TARGET __attribute__((target("avx512f,avx512bw")))
#define DILOCO_LANES_INLINE \
  __attribute__((target("avx512f,avx512bw"), always_inline)) static inline

using Vector = __m512i;

DILOCO_LANES_INLINE Vector Add(Vector a, Vector b) {
  return _mm512_add_epi32(a, b);
}

DILOCO_LANES_INLINE Vector Xor(Vector a, Vector b, Vector c) {
  return _mm512_ternarylogic_epi32(a, b, c, 0x96);
}

// The words of the chunk at `chunk` of every lane, from rows (a lane's words)
// to columns (a word of all lanes). The input of lane i lies at min(i, last)
// strides.
DILOCO_LANES_INLINE void LoadWords(const char* chunk, size_t stride,
                                   size_t last, Vector* words) {
  const Vector big_endian = _mm512_broadcast_i32x4(
      _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
  Vector rows[16], pairs[16], quads[16];
  for (size_t lane = 0; lane < 16; ++lane) {
    rows[lane] = _mm512_shuffle_epi8(
        _mm512_loadu_si512(chunk + std::min(lane, last) * stride), big_endian);
  }
  for (int i = 0; i < 8; ++i) {
    pairs[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
    pairs[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
  }
  for (int i = 0; i < 4; ++i) {
    const Vector* p = pairs + 4 * i;
    quads[4 * i] = _mm512_unpacklo_epi64(p[0], p[2]);
    quads[4 * i + 1] = _mm512_unpackhi_epi64(p[0], p[2]);
    quads[4 * i + 2] = _mm512_unpacklo_epi64(p[1], p[3]);
    quads[4 * i + 3] = _mm512_unpackhi_epi64(p[1], p[3]);
  }
  // The 128-bit part q of quads[4 i + j] is word 4 q + j of lanes 4 i and on.
  for (int j = 0; j < 4; ++j) {
    const Vector even_low = _mm512_shuffle_i32x4(quads[j], quads[4 + j], 0x88);
    const Vector odd_low = _mm512_shuffle_i32x4(quads[j], quads[4 + j], 0xdd);
    const Vector even_high =
        _mm512_shuffle_i32x4(quads[8 + j], quads[12 + j], 0x88);
    const Vector odd_high =
        _mm512_shuffle_i32x4(quads[8 + j], quads[12 + j], 0xdd);
    words[j] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    words[4 + j] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    words[8 + j] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    words[12 + j] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
}

// One chunk of every lane.
DILOCO_LANES_INLINE void Compress(const char* chunk, size_t stride, size_t last,
                                  Vector* state) {
  Vector w[16];
  LoadWords(chunk, stride, last, w);
  Vector s[8];
  for (int i = 0; i < 8; ++i) s[i] = state[i];
  for (int base = 0; base < 64; base += 16) {
#pragma GCC unroll 16
    for (int t = 0; t < 16; ++t) {
      if (base > 0) {
        const Vector w1 = w[(t + 1) & 15];
        const Vector w14 = w[(t + 14) & 15];
        const Vector sigma0 =
            Xor(_mm512_ror_epi32(w1, 7), _mm512_ror_epi32(w1, 18),
                _mm512_srli_epi32(w1, 3));
        const Vector sigma1 =
            Xor(_mm512_ror_epi32(w14, 17), _mm512_ror_epi32(w14, 19),
                _mm512_srli_epi32(w14, 10));
        w[t] = Add(Add(w[t], sigma0), Add(w[(t + 9) & 15], sigma1));
      }
      // The eight variables stay in place; their roles move by one a round.
      const Vector a = s[(0 - t) & 7], b = s[(1 - t) & 7], c = s[(2 - t) & 7];
      const Vector e = s[(4 - t) & 7], f = s[(5 - t) & 7], g = s[(6 - t) & 7];
      Vector& d = s[(3 - t) & 7];
      Vector& h = s[(7 - t) & 7];
      const Vector choice = _mm512_ternarylogic_epi32(e, f, g, 0xca);
      const Vector majority = _mm512_ternarylogic_epi32(a, b, c, 0xe8);
      const Vector sum1 = Xor(_mm512_ror_epi32(e, 6), _mm512_ror_epi32(e, 11),
                              _mm512_ror_epi32(e, 25));
      const Vector sum0 = Xor(_mm512_ror_epi32(a, 2), _mm512_ror_epi32(a, 13),
                              _mm512_ror_epi32(a, 22));
      const Vector constant =
          _mm512_set1_epi32(static_cast<int>(kRoundConstants[base + t]));
      h = Add(Add(h, Add(w[t], constant)), Add(sum1, choice));
      d = Add(d, h);
      h = Add(h, Add(sum0, majority));
    }
  }
  for (int i = 0; i < 8; ++i) state[i] = Add(state[i], s[i]);
}

DILOCO_LANES_TARGET std::array<Digest, kSha256Lanes> HashLanes(
    const char* first, size_t bytes, size_t count) {
  Vector state[8];
  for (int i = 0; i < 8; ++i) {
    state[i] = _mm512_set1_epi32(static_cast<int>(kInitial[i]));
  }
  for (size_t at = 0; at < bytes; at += kChunk) {
    Compress(first + at, bytes, count - 1, state);
  }
  // Padding: a one bit, zeros, the length in bits.
  char padding[kChunk] = {};
  padding[0] = static_cast<char>(0x80);
  for (int i = 0; i < 8; ++i) {
    padding[kChunk - 1 - i] = static_cast<char>(uint64_t{8} * bytes >> (8 * i));
  }
  Compress(padding, /*stride=*/0, /*last=*/0, state);
  std::array<Digest, kSha256Lanes> digests;
  for (size_t i = 0; i < 8; ++i) {
    alignas(64) uint32_t words[kSha256Lanes];
    _mm512_store_si512(words, state[i]);
    for (size_t lane = 0; lane < kSha256Lanes; ++lane) {
      for (size_t byte = 0; byte < 4; ++byte) {
        digests[lane].bytes[4 * i + byte] =
            static_cast<uint8_t>(words[lane] >> (24 - 8 * byte));
      }
    }
  }
  return digests;
}

}  // namespace

bool HasSha256Lanes() {
  static const bool has =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  return has;
}

std::array<Digest, kSha256Lanes> Sha256Lanes(const char* first, size_t bytes,
                                             size_t count) {
  DILOCO_CHECK(HasSha256Lanes() && bytes % kChunk == 0 && count >= 1 &&
               count <= kSha256Lanes)
      << count << " inputs of " << bytes << " bytes";
  return HashLanes(first, bytes, count);
}
#else
bool HasSha256Lanes() { return false; }

std::array<Digest, kSha256Lanes> Sha256Lanes(const char*, size_t, size_t) {
  DILOCO_CHECK(false) << "this CPU has no AVX-512";
  return {};
}
#endif

}  // namespace diloco

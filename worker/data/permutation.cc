// Implements permutation.h.
#include "worker/data/permutation.h"

#include "common/base/logging.h"

namespace diloco {
namespace {

// The finaliser of SplitMix64: every input bit reaches every output bit.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t epoch)
    : size_(size) {
  DILOCO_CHECK(size >= 1 && size <= uint64_t{1} << 62) << size;
  while (uint64_t{1} << (2 * half_bits_) < size) ++half_bits_;
  uint64_t key = Mix(Mix(seed) ^ epoch);
  for (uint64_t& round_key : keys_) {
    key = Mix(key);
    round_key = key;
  }
}

uint64_t Permutation::At(uint64_t position) const {
  DILOCO_CHECK(position < size_) << position << " of " << size_;
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t value = position;
  // The network permutes up to four times `size_` values; walking along its
  // cycle until one is inside permutes [0, size_).
  do {
    uint64_t left = value >> half_bits_;
    uint64_t right = value & mask;
    for (const uint64_t key : keys_) {
      const uint64_t next = left ^ (Mix(right ^ key) & mask);
      left = right;
      right = next;
    }
    value = left << half_bits_ | right;
  } while (value >= size_);
  return value;
}

}  // namespace diloco

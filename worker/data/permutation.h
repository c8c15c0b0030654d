// A keyed order of [0, size) without a table: a Feistel network with cycle
// walking. Used by token_dataset.cc to shuffle windows, so that any position of
// any epoch is found in constant time after a restart.
#ifndef WORKER_DATA_PERMUTATION_H_
#define WORKER_DATA_PERMUTATION_H_

#include <array>
#include <cstdint>

namespace diloco {

// Immutable; thread-safe. The order is part of a run's identity: it never
// changes for the same (size, seed, epoch).
class Permutation {
 public:
  // `size` from 1 to 2^62.
  Permutation(uint64_t size, uint64_t seed, uint64_t epoch);
  // `position` < size.
  uint64_t At(uint64_t position) const;

 private:
  static constexpr int kRounds = 6;

  const uint64_t size_;
  int half_bits_ = 1;
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace diloco

#endif  // WORKER_DATA_PERMUTATION_H_

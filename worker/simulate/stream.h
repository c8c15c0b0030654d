// Random numbers of a simulation: a stream for each purpose, so that what one
// purpose draws moves no other (SplitMix64).
#ifndef WORKER_SIMULATE_STREAM_H_
#define WORKER_SIMULATE_STREAM_H_

#include <cmath>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace diloco::sim {

class Stream {
 public:
  Stream(uint64_t seed, absl::string_view purpose) : state_(seed) {
    for (const char c : purpose) {
      state_ = Next() ^ static_cast<unsigned char>(c);
    }
  }

  uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15ull;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  uint64_t Below(uint64_t n) { return Next() % n; }
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  bool Chance(double p) { return Uniform() < p; }
  double Exponential(double mean) { return -mean * std::log1p(-Uniform()); }
  absl::Duration Between(absl::Duration from, absl::Duration to) {
    return from + Uniform() * (to - from);
  }
  std::string Bytes(size_t n) {
    std::string bytes(n, '\0');
    for (char& byte : bytes) byte = static_cast<char>(Next() >> 56);
    return bytes;
  }

 private:
  uint64_t state_;
};

}  // namespace diloco::sim

#endif  // WORKER_SIMULATE_STREAM_H_

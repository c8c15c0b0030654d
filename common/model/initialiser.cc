#include "common/model/initialiser.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/io/digest.h"

namespace diloco {
namespace {

constexpr double kStd = 0.02;

// The finaliser of splitmix64: counter in, well-mixed 64 bits out.
uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  x ^= x >> 31;
  return x;
}

// A standard normal variate times 2^16, as an integer: the sum of twelve
// uniform 16-bit numbers, centred (variance 12/12, tails end at 6). A counter
// gives three words, a word four numbers.
int64_t NormalTimes65536(uint64_t key, uint64_t counter) {
  constexpr uint64_t kGamma = 0x9e3779b97f4a7c15u;
  int64_t sum = 0;
  for (uint64_t word = 0; word < 3; ++word) {
    const uint64_t bits = Mix(key + kGamma * (3 * counter + word + 1));
    sum += static_cast<int64_t>(bits & 0xffff) +
           static_cast<int64_t>((bits >> 16) & 0xffff) +
           static_cast<int64_t>((bits >> 32) & 0xffff) +
           static_cast<int64_t>(bits >> 48);
  }
  return sum - 6 * 65535;
}

// Independent streams for each tensor, whatever its place in the layout.
uint64_t StreamKey(uint64_t seed, absl::string_view name) {
  const Digest digest = Sha256(absl::StrCat("diloco init ", seed, " ", name));
  uint64_t key = 0;
  for (int i = 0; i < 8; ++i) key |= uint64_t{digest.bytes[i]} << (8 * i);
  return key;
}

}  // namespace

absl::Status InitialiseTheta(const ModelConfig& config, const Layout& layout,
                             uint64_t seed, absl::Span<float> theta) {
  if (static_cast<int64_t>(theta.size()) != layout.elements) {
    return absl::InvalidArgumentError(absl::StrCat(
        "theta has ", theta.size(), " values, the layout ", layout.elements));
  }
  std::fill(theta.begin(), theta.end(), 0.0f);
  // Products and roots of doubles are exact to the last bit by IEEE 754.
  const double residual_std =
      kStd / std::sqrt(2.0 * static_cast<double>(config.layers));
  for (const TensorSpec& tensor : layout.tensors) {
    float* out = theta.data() + tensor.offset;
    if (tensor.decl.tensor_class == TensorClass::kVector) {
      std::fill(out, out + tensor.elements, 1.0f);
      continue;
    }
    const bool residual = absl::EndsWith(tensor.decl.name, ".o_proj.weight") ||
                          absl::EndsWith(tensor.decl.name, ".down_proj.weight");
    const double scale = (residual ? residual_std : kStd) / 65536.0;
    const uint64_t key = StreamKey(seed, tensor.decl.name);
    for (int64_t i = 0; i < tensor.elements; ++i) {
      const int64_t normal = NormalTimes65536(key, static_cast<uint64_t>(i));
      out[i] = static_cast<float>(static_cast<double>(normal) * scale);
    }
  }
  return absl::OkStatus();
}

}  // namespace diloco

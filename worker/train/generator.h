// Continues a sequence of token ids with a model, one id at a time over a cache
// of keys and values. Used by `sample`. No torch in this header.
#ifndef WORKER_TRAIN_GENERATOR_H_
#define WORKER_TRAIN_GENERATOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/model_config.h"
#include "common/tensor/layout.h"

namespace diloco {

struct SampleOptions {
  uint64_t tokens = 64;      // At most this many new ids.
  double temperature = 0.8;  // 0: always the most likely id.
  double top_p = 0.95;       // Smallest set with this probability; 1: all.
  uint64_t seed = 0;
  std::optional<int32_t> stop_id =
      std::nullopt;  // Ends the text; not part of the result.
};

// One thread at a time.
class Generator {
 public:
  virtual ~Generator() = default;

  // The new ids. The same arguments give the same ids (one thread). When the
  // model's positions are used up, the second half of them is kept as context.
  // INVALID_ARGUMENT for an empty prompt, an id outside the vocabulary or
  // options out of range.
  virtual absl::StatusOr<std::vector<int32_t>> Generate(
      absl::Span<const int32_t> prompt, const SampleOptions& options) = 0;
};

// `params` has layout.elements values and is copied. On the CPU.
absl::StatusOr<std::unique_ptr<Generator>> MakeGenerator(
    const ModelConfig& model, const Layout& layout,
    absl::Span<const float> params, int threads);

}  // namespace diloco

#endif  // WORKER_TRAIN_GENERATOR_H_

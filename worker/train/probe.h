// One forward and backward pass with everything visible: what the reference
// runner and tests compare. No torch in this header.
#ifndef WORKER_TRAIN_PROBE_H_
#define WORKER_TRAIN_PROBE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/model_config.h"
#include "common/tensor/layout.h"
#include "worker/train/trainer.h"

namespace diloco {

struct ForwardProbe {
  double loss = 0;    // Mean over the counted predictions.
  double z_loss = 0;  // Apart.
  // [windows, ids_per_window, vocab], row-major: the logits after every id, the
  // last of a window included. Empty when that is one position too many.
  std::vector<float> logits;
  std::vector<float> grads;  // Of the loss; as the layout.
};

// `params` has layout.elements values. On the CPU with one
// thread; costs a fresh model, not for hot paths. Errors as Trainer::Step.
absl::StatusOr<ForwardProbe> RunForwardProbe(const ModelConfig& model,
                                             const Layout& layout,
                                             absl::Span<const float> params,
                                             const Batch& batch);

}  // namespace diloco

#endif  // WORKER_TRAIN_PROBE_H_

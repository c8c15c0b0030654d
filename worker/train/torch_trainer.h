// The trainer on LibTorch. Used by the worker's agent and by train-local.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<Trainer> trainer,
//                    MakeTorchTrainer(model, layout, train, {.threads = 1}));
#ifndef WORKER_TRAIN_TORCH_TRAINER_H_
#define WORKER_TRAIN_TORCH_TRAINER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/config/run_settings.h"
#include "common/model/model_config.h"
#include "common/tensor/layout.h"
#include "worker/train/trainer.h"

namespace diloco {

struct TorchOptions {
  int threads = 1;  // Of LibTorch's pool; with 1, equal runs give equal bits.
  // Windows per forward and backward pass; 0: the whole batch at once. Bounds
  // memory, changes only rounding.
  int64_t micro_batch = 0;
  std::string device = "cpu";  // Or "cuda", "cuda:N".
};

// Parameters and anchors are zero until Load. `model` must be valid
// (ValidateModel) with head_dim and max_positions set, and `layout` must be one
// of its own. FAILED_PRECONDITION when the device is not there,
// INVALID_ARGUMENT for an unknown device name or a layout without one of the
// model's tensors.
absl::StatusOr<std::unique_ptr<Trainer>> MakeTorchTrainer(
    const ModelConfig& model, const Layout& layout, const TrainSettings& train,
    const TorchOptions& options);

}  // namespace diloco

#endif  // WORKER_TRAIN_TORCH_TRAINER_H_

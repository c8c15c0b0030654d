// From a Batch to the tensors of a forward pass. Used by torch_trainer.cc and
// probe.cc.
#ifndef WORKER_TRAIN_BATCH_TENSORS_H_
#define WORKER_TRAIN_BATCH_TENSORS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/model/model_config.h"
#include "worker/train/trainer.h"
#include "worker/train/transformer.h"

namespace diloco {

// INVALID_ARGUMENT for sizes that do not fit together, windows longer than the
// model's positions, or an id outside the vocabulary (with its place).
absl::Status CheckBatch(const ModelConfig& model, const Batch& batch);

// Predictions that count in windows [first, first + windows).
uint64_t CountedPredictions(const Batch& batch, int64_t first, int64_t windows);

// The inputs of windows [first, first + windows) of a checked batch.
Transformer::Inputs MakeInputs(const Batch& batch, int64_t first,
                               int64_t windows, at::Device device);

}  // namespace diloco

#endif  // WORKER_TRAIN_BATCH_TENSORS_H_

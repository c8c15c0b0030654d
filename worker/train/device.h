// Opens the device a configuration names. Used by torch_trainer.cc.
#ifndef WORKER_TRAIN_DEVICE_H_
#define WORKER_TRAIN_DEVICE_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/train/torch_headers.h"

namespace diloco {

// "cpu", or "cuda" / "cuda:N", for which LibTorch's CUDA library is loaded.
// FAILED_PRECONDITION says what is missing; INVALID_ARGUMENT for another name.
absl::StatusOr<at::Device> OpenDevice(const std::string& name);

}  // namespace diloco

#endif  // WORKER_TRAIN_DEVICE_H_

// Implements device.h.
#include "worker/train/device.h"

#include <dlfcn.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace diloco {

absl::StatusOr<at::Device> OpenDevice(const std::string& name) {
  if (name == "cpu") return at::Device(at::kCPU);
  int index = 0;
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, "cuda") ||
      (!rest.empty() && (!absl::ConsumePrefix(&rest, ":") ||
                         !absl::SimpleAtoi(rest, &index) || index < 0))) {
    return absl::InvalidArgumentError(
        absl::StrCat("device: \"", name, "\" is not one of cpu, cuda, cuda:N"));
  }
  // The kernels register themselves when the library is loaded.
  if (!at::hasCUDA() &&
      dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("device: ", name,
                     " is not available, LibTorch's CUDA library does not "
                     "load: ",
                     dlerror(),
                     " (install the PyPI package with that library, or "
                     "use device: cpu)"));
  }
  if (!at::hasCUDA() || at::getNumGPUs() <= static_cast<size_t>(index)) {
    return absl::FailedPreconditionError(
        absl::StrCat("device: ", name, " is not available, the driver shows ",
                     at::hasCUDA() ? at::getNumGPUs() : 0,
                     " CUDA devices (use device: cpu)"));
  }
  return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(index));
}

}  // namespace diloco

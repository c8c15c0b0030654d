// The JSON header of a safetensors file, strictly. Used by safetensors.cc; a
// fuzz target of its own.
#ifndef COMMON_MODEL_SAFETENSORS_HEADER_H_
#define COMMON_MODEL_SAFETENSORS_HEADER_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/safetensors.h"

namespace diloco {

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  // In data order.
  std::map<std::string, std::string> metadata;
};

// `data_bytes` is what follows the header in the file. INVALID_ARGUMENT names
// tensor and numbers.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         uint64_t data_bytes);

}  // namespace diloco

#endif  // COMMON_MODEL_SAFETENSORS_HEADER_H_

// RunSettings to its wire form and back. A worker gets them at join.
#ifndef COMMON_RPC_SETTINGS_CODEC_H_
#define COMMON_RPC_SETTINGS_CODEC_H_

#include "absl/status/statusor.h"
#include "common/config/run_settings.h"
#include "diloco/v1/model.pb.h"

namespace diloco {

void EncodeRunSettings(const RunSettings& settings, v1::RunSettings* out);

// INVALID_ARGUMENT names the field and the value that this build does not know
// (a newer coordinator): the worker must not guess.
absl::StatusOr<RunSettings> DecodeRunSettings(const v1::RunSettings& settings);

}  // namespace diloco

#endif  // COMMON_RPC_SETTINGS_CODEC_H_

// The settings that a state directory was made with, beside its journal in
// words, so that a refusal can name what differs. Used by recovery.
#ifndef COORDINATOR_RUNTIME_SETTINGS_FILE_H_
#define COORDINATOR_RUNTIME_SETTINGS_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/io/file_system.h"

namespace diloco {

// Durable when it returns.
absl::Status KeepSettings(FileSystem* fs, const std::string& state_dir,
                          const std::string& text);

// Both are lines "key = value" (SettingsText). One sentence about each key that
// differs, e.g. "train.tokens is 2000 in the run file, 1000 in the state
// directory"; empty when none does.
std::string SettingsDifference(absl::string_view kept,
                               absl::string_view run_file);

}  // namespace diloco

#endif  // COORDINATOR_RUNTIME_SETTINGS_FILE_H_

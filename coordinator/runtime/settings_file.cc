#include "coordinator/runtime/settings_file.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "coordinator/store/state_dir.h"

namespace diloco {
namespace {

std::map<std::string, std::string> ByKey(absl::string_view text) {
  std::map<std::string, std::string> values;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> pair =
        absl::StrSplit(line, absl::MaxSplits(" = ", 1));
    values.insert(pair);
  }
  return values;
}

}  // namespace

absl::Status KeepSettings(FileSystem* fs, const std::string& state_dir,
                          const std::string& text) {
  return WriteFileAtomic(fs, JoinPath(state_dir, kSettingsFile), text);
}

std::string SettingsDifference(absl::string_view kept,
                               absl::string_view run_file) {
  const std::map<std::string, std::string> before = ByKey(kept);
  const std::map<std::string, std::string> now = ByKey(run_file);
  std::string text;
  const auto say = [&](const std::string& key, const std::string& ours,
                       const std::string& theirs) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", key, " is ", ours,
                    " in the run file, ", theirs, " in the state directory");
  };
  for (const auto& [key, value] : before) {
    const auto found = now.find(key);
    if (found == now.end()) {
      say(key, "not set", value);
    } else if (found->second != value) {
      say(key, found->second, value);
    }
  }
  for (const auto& [key, value] : now) {
    if (before.count(key) == 0) say(key, value, "not set");
  }
  return text;
}

}  // namespace diloco

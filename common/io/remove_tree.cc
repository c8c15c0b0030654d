#include "common/io/remove_tree.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace diloco {

void RemoveTree(FileSystem* fs, const std::string& path) {
  const absl::StatusOr<std::vector<std::string>> names = fs->List(path);
  if (names.ok()) {
    for (const std::string& name : *names) RemoveTree(fs, JoinPath(path, name));
  }
  fs->Remove(path).IgnoreError();
}

void RemoveLeftBeside(FileSystem* fs, const std::string& path) {
  const std::string dir = DirName(path);
  const absl::StatusOr<std::vector<std::string>> names = fs->List(dir);
  if (!names.ok()) return;
  const std::string prefix =
      absl::StrCat(path.substr(path.rfind('/') + 1), ".");
  for (const std::string& name : *names) {
    absl::string_view digits = name;
    if (absl::ConsumePrefix(&digits, prefix) &&
        absl::ConsumeSuffix(&digits, ".tmp") && digits.size() == 8 &&
        std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit)) {
      RemoveTree(fs, JoinPath(dir, name));
    }
  }
}

}  // namespace diloco

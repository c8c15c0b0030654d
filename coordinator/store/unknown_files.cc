#include "coordinator/store/unknown_files.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "coordinator/store/state_dir.h"

namespace diloco {
namespace {

struct Named {
  uint32_t fragment = 0;
  uint64_t number = 0;
};

size_t Digits(absl::string_view text) {
  const size_t end = text.find_first_not_of("0123456789");
  return end == absl::string_view::npos ? text.size() : end;
}

// "f00-v000008.theta", "f00-r000012": fragment and number.
std::optional<Named> ParseName(absl::string_view name, char kind) {
  Named named;
  if (name.empty() || name[0] != 'f') return std::nullopt;
  name.remove_prefix(1);
  const size_t fragment = Digits(name);
  if (!absl::SimpleAtoi(name.substr(0, fragment), &named.fragment)) {
    return std::nullopt;
  }
  name.remove_prefix(fragment);
  if (name.size() < 3 || name[0] != '-' || name[1] != kind) return std::nullopt;
  name.remove_prefix(2);
  if (!absl::SimpleAtoi(name.substr(0, Digits(name)), &named.number)) {
    return std::nullopt;
  }
  return named;
}

}  // namespace

absl::StatusOr<std::optional<std::string>> FindUnknownFile(
    FileSystem* fs, const std::string& dir,
    const std::map<uint32_t, KnownFiles>& known) {
  for (const char* part : {kBlobDir, kImageDir, kSpoolDir}) {
    const std::string path = JoinPath(dir, part);
    if (!fs->Exists(path)) continue;
    const bool rounds = part == kSpoolDir;
    ASSIGN_OR_RETURN(const std::vector<std::string> names, fs->List(path));
    for (const std::string& name : names) {
      const std::optional<Named> named = ParseName(name, rounds ? 'r' : 'v');
      if (!named.has_value()) continue;
      KnownFiles newest;
      const auto found = known.find(named->fragment);
      if (found != known.end()) newest = found->second;
      if (named->number > (rounds ? newest.round : newest.version)) {
        return JoinPath(path, name);
      }
    }
  }
  return std::nullopt;
}

}  // namespace diloco

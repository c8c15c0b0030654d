// `dilococtl set`: other values for settings that may change in mid-run.
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "coordinator/cli/change_settings.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/message_json.h"
#include "coordinator/config.h"

namespace diloco {
namespace {

// A file's value is its digest.
std::string Shown(const std::string& value) {
  const bool digest =
      value.size() == 64 &&
      value.find_first_not_of("0123456789abcdef") == std::string::npos;
  return digest ? absl::StrCat(value.substr(0, 12), "...") : Printable(value);
}

absl::Status List(const Invocation& invocation) {
  AdminClient client(invocation.coordinator);
  ASSIGN_OR_RETURN(const v1::SettingsResponse settings, client.GetSettings());
  if (invocation.json) {
    std::printf("%s\n", JsonLine(MessageToJson(settings)).c_str());
    return absl::OkStatus();
  }
  std::map<std::string, std::string> now;
  for (const auto& value : settings.in_force())
    now[value.key()] = value.value();
  std::map<std::string, std::string> next;
  for (const auto& value : settings.accepted()) {
    next[value.key()] = value.value();
  }
  std::printf("settings revision %llu; these may change:\n",
              static_cast<unsigned long long>(settings.revision()));
  for (const ChangeableSetting& setting : ChangeableSettings()) {
    const std::string value = Shown(now[setting.key]);
    const std::string then = Shown(next[setting.key]);
    std::printf(
        "  %-30s %-14s %s%s\n      %s\n", setting.key.c_str(), value.c_str(),
        value == then ? ""
                      : absl::StrCat(then, " from the next round on; ").c_str(),
        setting.expected.c_str(), setting.doc.c_str());
  }
  return absl::OkStatus();
}

absl::Status RunSet(const Invocation& invocation) {
  const std::vector<std::string>& words = invocation.positional;
  if (invocation.Has("list")) {
    if (words.empty()) return List(invocation);
    return absl::InvalidArgumentError("set --list takes no key");
  }
  if (words.empty() || words.size() % 2 != 0) {
    return absl::InvalidArgumentError(
        "set needs KEY VALUE, such as: dilococtl set train.tokens 3M; set "
        "--list shows the keys");
  }
  v1::ChangeSettingsRequest request;
  for (size_t i = 0; i < words.size(); i += 2) {
    v1::SettingValue* value = request.add_values();
    value->set_key(words[i]);
    value->set_value(words[i + 1]);
  }
  return ChangeSettings(invocation, std::move(request));
}

}  // namespace

CommandSpec SetCommand() {
  CommandSpec command;
  command.name = "set";
  command.summary = "change settings of the run, from its next round on";
  command.positional = {"[KEY", "VALUE]", "[KEY2", "VALUE2]"};
  command.flags = {
      {"list", "", "show the keys that may change, with values and bounds"},
      {"reason", "TEXT", "kept in the journal and shown to everyone"}};
  command.details =
      "Keys and values are those of the run file. A round keeps the settings "
      "that\n"
      "it opened under; keys that only judge what comes next count at once. "
      "The\n"
      "change is journaled, outlasts restarts, and wins over a run file that "
      "is\n"
      "left as it was. A larger train.tokens makes a finished run go on. Keys "
      "that\n"
      "must change together go in one call.\n";
  command.example =
      "  dilococtl set train.tokens 3M --reason \"more data\"\n"
      "  dilococtl set sync.interval 100\n"
      "  dilococtl set sync.rounds_first 0 sync.interval_first 0\n"
      "  dilococtl set --list\n";
  command.run = RunSet;
  return command;
}

}  // namespace diloco

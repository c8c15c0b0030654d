#include "coordinator/cli/command.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/edit_distance.h"
#include "common/base/status_macros.h"

namespace diloco {
namespace {

std::string FlagLine(const FlagSpec& flag) {
  const std::string name = flag.value.empty()
                               ? absl::StrCat("--", flag.name)
                               : absl::StrCat("--", flag.name, " ", flag.value);
  return absl::StrFormat("  %-24s %s\n", name, flag.help);
}

const FlagSpec* FindFlag(const CommandSpec& command, absl::string_view name) {
  for (const FlagSpec& flag : command.flags) {
    if (flag.name == name) return &flag;
  }
  for (const FlagSpec& flag : GlobalFlags()) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

absl::Status UnknownFlag(const CommandSpec& command, absl::string_view name) {
  std::vector<std::string> names;
  for (const FlagSpec& flag : command.flags) names.push_back(flag.name);
  for (const FlagSpec& flag : GlobalFlags()) names.push_back(flag.name);
  const std::string nearest = NearestName(name, names);
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown flag --", name,
      nearest.empty() ? "" : absl::StrCat("; did you mean --", nearest, "?"),
      " See dilococtl ", command.name, " --help"));
}

}  // namespace

std::string Invocation::Get(const std::string& flag) const {
  const auto it = flags.find(flag);
  return it == flags.end() ? "" : it->second;
}

const std::vector<FlagSpec>& GlobalFlags() {
  static const auto* const kFlags = new std::vector<FlagSpec>{
      {"coordinator", "HOST:PORT",
       "where the coordinator serves control "
       "(default 127.0.0.1:7600)"},
      {"json", "", "print JSON instead of text"},
      {"help", "", "say how to use the command"},
  };
  return *kFlags;
}

absl::StatusOr<Invocation> ParseInvocation(const CommandSpec& command,
                                           Invocation globals,
                                           const std::vector<std::string>& args,
                                           bool* help) {
  Invocation invocation = std::move(globals);
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "-h") {
      *help = true;
      continue;
    }
    if (arg.size() < 3 || arg.substr(0, 2) != "--") {
      if (!arg.empty() && arg[0] == '-') {
        return absl::InvalidArgumentError(
            absl::StrCat("unknown argument ", arg, "; flags begin with --"));
      }
      invocation.positional.push_back(arg);
      continue;
    }
    const size_t equals = arg.find('=');
    const std::string name =
        arg.substr(2, equals == std::string::npos ? equals : equals - 2);
    const FlagSpec* flag = FindFlag(command, name);
    if (flag == nullptr) return UnknownFlag(command, name);
    std::string value;
    if (flag->value.empty()) {
      if (equals != std::string::npos) {
        return absl::InvalidArgumentError(
            absl::StrCat("--", name, " takes no value"));
      }
    } else if (equals != std::string::npos) {
      value = arg.substr(equals + 1);
    } else if (i + 1 < args.size()) {
      value = args[++i];
    }
    if (!flag->value.empty() && value.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, " needs a value: ", flag->value));
    }
    if (name == "help") {
      *help = true;
    } else if (name == "json") {
      invocation.json = true;
    } else if (name == "coordinator") {
      invocation.coordinator = value;
    } else {
      invocation.flags[name] = value;
    }
  }
  if (*help) return invocation;
  const size_t wanted = command.positional.size();
  if (invocation.positional.size() < wanted &&
      command.positional[invocation.positional.size()][0] != '[') {
    return absl::InvalidArgumentError(
        absl::StrCat(command.name, " needs ",
                     command.positional[invocation.positional.size()],
                     ". See dilococtl ", command.name, " --help"));
  }
  if (invocation.positional.size() > wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("unexpected argument ", invocation.positional[wanted],
                     ". See dilococtl ", command.name, " --help"));
  }
  return invocation;
}

std::string CommandHelp(const CommandSpec& command) {
  std::string text = absl::StrCat("usage: dilococtl ", command.name);
  for (const std::string& name : command.positional) {
    absl::StrAppend(&text, " ", name);
  }
  absl::StrAppend(&text, " [flags]\n\n", command.summary, "\n");
  if (!command.details.empty()) absl::StrAppend(&text, "\n", command.details);
  absl::StrAppend(&text, "\nflags:\n");
  for (const FlagSpec& flag : command.flags) {
    absl::StrAppend(&text, FlagLine(flag));
  }
  for (const FlagSpec& flag : GlobalFlags()) {
    absl::StrAppend(&text, FlagLine(flag));
  }
  absl::StrAppend(&text, "\nexample:\n", command.example);
  return text;
}

std::string ProgramHelp(const std::vector<CommandSpec>& commands) {
  std::string text =
      "usage: dilococtl [flags] COMMAND [arguments]\n\n"
      "The operator's command line for a running diloco-coordinator.\n\n"
      "commands:\n";
  for (const CommandSpec& command : commands) {
    std::vector<std::string> words = {command.name};
    words.insert(words.end(), command.positional.begin(),
                 command.positional.end());
    absl::StrAppend(&text,
                    absl::StrFormat("  %-24s %s\n", absl::StrJoin(words, " "),
                                    command.summary));
  }
  absl::StrAppend(&text, "\nflags:\n");
  for (const FlagSpec& flag : GlobalFlags()) {
    absl::StrAppend(&text, FlagLine(flag));
  }
  absl::StrAppend(
      &text,
      "\nexit codes:\n"
      "  0   done\n"
      "  1   failed; the message says why\n"
      "  2   wrong usage, or a bad configuration file\n"
      "  3   refused: not allowed\n"
      "  4   the coordinator speaks another version of the protocol\n"
      "  75  temporary: the coordinator cannot be reached or does not answer; "
      "try again\n"
      "\nexample:\n"
      "  dilococtl status\n"
      "  dilococtl watch --rounds --coordinator 10.0.0.5:7600\n"
      "\nMore about a command: dilococtl COMMAND --help\n");
  return text;
}

std::string NearestName(absl::string_view name,
                        const std::vector<std::string>& names) {
  std::string best;
  int best_distance = 1 + std::max(2, static_cast<int>(name.size() / 3));
  for (const std::string& candidate : names) {
    const int distance = EditDistance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kExitRefused;
    case absl::StatusCode::kUnimplemented:
      return kExitIncompatible;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitTemporary;
    default:
      return kExitOther;
  }
}

absl::StatusOr<uint64_t> ParseCount(absl::string_view flag,
                                    const std::string& text) {
  uint64_t value = 0;
  if (text.empty() || text[0] < '0' || text[0] > '9' ||
      !absl::SimpleAtoi(text, &value)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag, " ", text, ": expected a whole number, such as 12"));
  }
  return value;
}

}  // namespace diloco

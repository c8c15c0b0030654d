#include "coordinator/cli/command.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/edit_distance.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/config/values.h"

namespace diloco {
namespace {

std::string FlagLine(const FlagSpec& flag) {
  const std::string name = flag.value.empty()
                               ? absl::StrCat("--", flag.name)
                               : absl::StrCat("--", flag.name, " ", flag.value);
  return absl::StrFormat("  %-24s %s\n", name, flag.help);
}

// Its own and those of all commands, in the order of --help.
std::vector<FlagSpec> FlagsOf(const CommandSpec& command) {
  std::vector<FlagSpec> flags = command.flags;
  for (const FlagSpec& flag : GlobalFlags()) {
    if (!command.local || flag.name == "help") flags.push_back(flag);
  }
  return flags;
}

// What the coordinator keeps and shows to everyone.
absl::Status CheckText(const std::string& what, const std::string& text) {
  if (FindInvalidUtf8(text).has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " ", Printable(text), " is not UTF-8; write it anew"));
  }
  if (Printable(text) == text) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, " ", Printable(text), " has control characters; write plain text"));
}

absl::Status CheckValue(const FlagSpec& flag, const std::string& value) {
  if (flag.value == "TEXT") return CheckText("--" + flag.name, value);
  if (flag.name != "coordinator") return absl::OkStatus();
  std::string problem = HostPortProblem(value);
  if (problem.empty() && absl::EndsWith(value, ":0")) {
    problem = "nobody listens on port 0";
  }
  if (problem.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--coordinator ", value, ": ", problem,
                   "; expected HOST:PORT, such as 10.0.0.5:7600"));
}

absl::Status UnknownFlag(const CommandSpec& command, absl::string_view name) {
  std::vector<std::string> names;
  for (const FlagSpec& flag : FlagsOf(command)) names.push_back(flag.name);
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
  const std::vector<FlagSpec> known = FlagsOf(command);
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
      // A local command's are files, whose names may have any byte.
      if (!command.local) RETURN_IF_ERROR(CheckText("argument", arg));
      invocation.positional.push_back(arg);
      continue;
    }
    const size_t equals = arg.find('=');
    const std::string name =
        arg.substr(2, equals == std::string::npos ? equals : equals - 2);
    const auto flag =
        std::find_if(known.begin(), known.end(),
                     [&](const FlagSpec& spec) { return spec.name == name; });
    if (flag == known.end()) return UnknownFlag(command, name);
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
    RETURN_IF_ERROR(CheckValue(*flag, value));
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
  for (const FlagSpec& flag : FlagsOf(command)) {
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

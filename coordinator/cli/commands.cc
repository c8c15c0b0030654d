#include "coordinator/cli/commands.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/edit_distance.h"
#include "common/base/utf8.h"

namespace diloco {
namespace {

// A command that has printed its errors itself returns one without words.
int Complain(const absl::Status& status) {
  if (!status.message().empty()) {
    std::fprintf(stderr, "dilococtl: %s\n",
                 Printable(status.message()).c_str());
  }
  return ExitCodeOf(status);
}

// What was printed must have arrived, or a script takes nothing for an answer.
int Finish(const absl::Status& status) {
  if (!status.ok()) return Complain(status);
  return Complain(FlushOutput());
}

int Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return Finish(absl::OkStatus());
}

// Takes the flags before the command's name off `args`.
absl::StatusOr<Invocation> TakeGlobals(std::vector<std::string>& args,
                                       bool* help, bool* version) {
  CommandSpec globals;
  globals.flags = {{"version", "", ""}};
  std::vector<std::string> before;
  while (!args.empty() && !args[0].empty() && args[0][0] == '-') {
    const bool takes_value = args[0] == "--coordinator" && args.size() > 1;
    before.push_back(args[0]);
    args.erase(args.begin());
    if (takes_value) {
      before.push_back(args[0]);
      args.erase(args.begin());
    }
  }
  absl::StatusOr<Invocation> parsed =
      ParseInvocation(globals, Invocation{}, before, help);
  if (parsed.ok()) *version = parsed->flags.erase("version") > 0;
  return parsed;
}

}  // namespace

absl::Status FlushOutput() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat("cannot write the output",
                   errno == 0 ? "" : absl::StrCat(": ", std::strerror(errno))));
}

std::vector<CommandSpec> AllCommands() {
  return {
      StatusCommand(), WatchCommand(),   ReportCommand(),  PauseCommand(),
      ResumeCommand(), StopCommand(),    DrainCommand(),   EvictCommand(),
      SetCommand(),    DecayCommand(),   ExportCommand(),  ConfigCommand(),
      PlanCommand(),   InspectCommand(), VerifyCommand(),  HistoryCommand(),
      LedgerCommand(), BackupCommand(),  RestoreCommand(), RollbackCommand(),
      ForkCommand(),   RefoldCommand(),  RepairCommand(),  VersionCommand()};
}

int RunDilococtl(const std::vector<std::string>& args) {
  const std::vector<CommandSpec> commands = AllCommands();
  std::vector<std::string> rest = args;
  bool help = false;
  bool version = false;
  absl::StatusOr<Invocation> globals = TakeGlobals(rest, &help, &version);
  if (!globals.ok()) return Complain(globals.status());
  if (version) rest = {"version"};
  if (help || (!rest.empty() && rest[0] == "help" && rest.size() == 1)) {
    return Print(ProgramHelp(commands));
  }
  if (rest.empty()) {
    return Complain(absl::InvalidArgumentError(
        "needs a command, such as status; see dilococtl --help"));
  }
  std::vector<std::string> names;
  for (const CommandSpec& command : commands) names.push_back(command.name);
  for (const CommandSpec& command : commands) {
    if (command.name != rest[0]) continue;
    rest.erase(rest.begin());
    absl::StatusOr<Invocation> invocation =
        ParseInvocation(command, *globals, rest, &help);
    if (!invocation.ok()) return Complain(invocation.status());
    if (help) return Print(CommandHelp(command));
    return Finish(command.run(*invocation));
  }
  const std::string nearest = NearestName(rest[0], names);
  return Complain(absl::InvalidArgumentError(absl::StrCat(
      "unknown command ", rest[0],
      nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?"),
      " See dilococtl --help")));
}

}  // namespace diloco

// The sub-commands of dilococtl; each lives in the .cc file of its name.
#ifndef COORDINATOR_CLI_COMMANDS_H_
#define COORDINATOR_CLI_COMMANDS_H_

#include <vector>

#include "coordinator/cli/command.h"

namespace diloco {

CommandSpec StatusCommand();
CommandSpec WatchCommand();
CommandSpec ReportCommand();
CommandSpec PauseCommand();
CommandSpec ResumeCommand();
CommandSpec StopCommand();
CommandSpec DrainCommand();
CommandSpec EvictCommand();
CommandSpec SetCommand();
CommandSpec DecayCommand();
CommandSpec ExportCommand();
CommandSpec ConfigCommand();
CommandSpec PlanCommand();
CommandSpec InspectCommand();
CommandSpec VerifyCommand();
CommandSpec HistoryCommand();
CommandSpec LedgerCommand();
CommandSpec BackupCommand();
CommandSpec RestoreCommand();
CommandSpec RollbackCommand();
CommandSpec ForkCommand();
CommandSpec RefoldCommand();
CommandSpec RepairCommand();
CommandSpec VersionCommand();

// All of them, in the order of --help.
std::vector<CommandSpec> AllCommands();

// Whether all that was printed so far has arrived.
absl::Status FlushOutput();

// What main does, without the process: parses, runs, prints, and returns the
// exit code. Errors are one line on stderr.
int RunDilococtl(const std::vector<std::string>& args);

}  // namespace diloco

#endif  // COORDINATOR_CLI_COMMANDS_H_

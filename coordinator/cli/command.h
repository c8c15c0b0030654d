// What a sub-command of dilococtl declares about itself, and how its arguments
// are parsed. The table in commands.cc drives parsing, --help and the hint for
// a mistyped name alike.
#ifndef COORDINATOR_CLI_COMMAND_H_
#define COORDINATOR_CLI_COMMAND_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace diloco {

struct FlagSpec {
  std::string name;  // Without dashes.
  // What to call its value, e.g. "DIR"; "TEXT" is checked; empty: a switch.
  std::string value;
  std::string help;
};

// One call of a sub-command, parsed.
struct Invocation {
  std::string coordinator = "127.0.0.1:7600";
  bool json = false;
  std::map<std::string, std::string> flags;  // Switches have an empty value.
  std::vector<std::string> positional;

  bool Has(const std::string& flag) const { return flags.count(flag) > 0; }
  // Empty when the flag was not given.
  std::string Get(const std::string& flag) const;
};

struct CommandSpec {
  std::string name;
  std::string summary;                  // One line, for the list.
  std::vector<std::string> positional;  // Names; "[NAME]" may be left out.
  std::vector<FlagSpec> flags;
  bool local = false;   // Needs no coordinator and prints no JSON.
  std::string details;  // Paragraphs for --help; may be empty.
  std::string example;  // Lines for --help.
  // Prints its result on stdout; an error becomes one line and an exit code.
  absl::Status (*run)(const Invocation& invocation) = nullptr;
};

// Parses what follows the command's name. INVALID_ARGUMENT says what is wrong
// and names the nearest flag.
absl::StatusOr<Invocation> ParseInvocation(const CommandSpec& command,
                                           Invocation globals,
                                           const std::vector<std::string>& args,
                                           bool* help);

// Flags that stand before or after the command's name.
const std::vector<FlagSpec>& GlobalFlags();

std::string CommandHelp(const CommandSpec& command);
std::string ProgramHelp(const std::vector<CommandSpec>& commands);

// Exit codes of dilococtl, as --help lists them.
inline constexpr int kExitOk = 0;
inline constexpr int kExitOther = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitRefused = 3;
inline constexpr int kExitIncompatible = 4;
inline constexpr int kExitTemporary = 75;
int ExitCodeOf(const absl::Status& status);

// Parses a whole decimal number for a flag.
absl::StatusOr<uint64_t> ParseCount(absl::string_view flag,
                                    const std::string& text);

}  // namespace diloco

#endif  // COORDINATOR_CLI_COMMAND_H_

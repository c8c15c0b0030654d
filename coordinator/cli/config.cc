// `dilococtl config`: checks and prints a run file without a coordinator, with
// the code that the daemon itself uses.
#include "coordinator/config.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/io/file_system.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/example_run.h"
#include "coordinator/cli/run_file.h"
#include "coordinator/presets.h"

namespace diloco {
namespace {

absl::Status Init(const std::string& path) {
  FileSystem* const fs = FileSystem::Posix();
  if (fs->Exists(path)) {
    return absl::AlreadyExistsError(
        absl::StrCat(path, " exists; give the name of a new file"));
  }
  RETURN_IF_ERROR(WriteFileAtomic(fs, path, kExampleRun));
  std::printf("%s: every key, with its default or an example\n", path.c_str());
  return absl::OkStatus();
}

absl::Status RunConfigCommand(const Invocation& invocation) {
  if (invocation.json) {
    return absl::InvalidArgumentError(
        "config prints YAML and FILE:LINE:COLUMN messages, not JSON; leave "
        "--json out");
  }
  const std::string& action = invocation.positional[0];
  if (action == "init") return Init(invocation.positional[1]);
  if (action != "check" && action != "print") {
    const std::string nearest = NearestName(action, {"check", "print", "init"});
    return absl::InvalidArgumentError(absl::StrCat(
        "config ", action, ": expected check, print or init",
        nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?")));
  }
  ASSIGN_OR_RETURN(const LoadedRun loaded,
                   LoadRunFile(invocation.positional[1]));
  for (const std::string& warning : loaded.warnings) {
    std::fprintf(stderr, "%s\n", warning.c_str());
  }
  if (action == "print") {
    std::fputs(PrintRunConfig(loaded.config).c_str(), stdout);
    return absl::OkStatus();
  }
  std::printf("%s: good, run %s, settings digest %s\n%s\n",
              invocation.positional[1].c_str(), loaded.config.run.c_str(),
              SettingsDigest(loaded.config).Short().c_str(),
              PresetText(loaded.config).c_str());
  return absl::OkStatus();
}

}  // namespace

CommandSpec ConfigCommand() {
  CommandSpec command;
  command.name = "config";
  command.summary =
      "check a run file, print its effective values, or write an example";
  command.positional = {"check|print|init", "FILE"};
  command.local = true;
  command.details =
      "check exits 2 and lists all errors as FILE:LINE:COLUMN: KEY: MESSAGE;\n"
      "nothing is written. FILE is a coordinator's run.yaml; init writes "
      "one.\n";
  command.example =
      "  dilococtl config init run.yaml\n"
      "  dilococtl config check run.yaml\n"
      "  dilococtl config print run.yaml\n";
  command.run = RunConfigCommand;
  return command;
}

}  // namespace diloco

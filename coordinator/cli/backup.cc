// `dilococtl backup`: a consistent copy of a state directory.
#include <cstdio>
#include <string>

#include "common/base/status_macros.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/format.h"
#include "coordinator/cli/message_json.h"
#include "coordinator/cli/progress.h"
#include "coordinator/offline/run_copy.h"

namespace diloco {
namespace {

absl::Status RunBackup(const Invocation& invocation) {
  const std::string out = invocation.Get("out");
  if (out.empty()) {
    return absl::InvalidArgumentError(
        "backup needs --out DIR, a directory that does not exist yet");
  }
  RunCopy result;
  {
    const CopyProgress progress;
    ASSIGN_OR_RETURN(result,
                     BackUp(FileSystem::Posix(), invocation.positional[0], out,
                            progress.callback()));
  }
  if (invocation.json) {
    nlohmann::ordered_json json;
    json["out"] = out;
    json["version"] = result.version;
    json["records"] = result.records;
    json["files"] = result.files;
    json["bytes"] = result.bytes;
    std::printf("%s\n", JsonLine(json).c_str());
    return absl::OkStatus();
  }
  std::printf("%s: version %lu, %lu files, %s, verified\n", out.c_str(),
              static_cast<unsigned long>(result.version),
              static_cast<unsigned long>(result.files),
              FormatBytes(static_cast<double>(result.bytes)).c_str());
  return absl::OkStatus();
}

}  // namespace

CommandSpec BackupCommand() {
  CommandSpec command;
  command.name = "backup";
  command.summary = "copy a state directory, also beside its coordinator";
  command.positional = {"DIR"};
  command.flags = {{"out", "DIR", "where to; must not exist yet (required)"}};
  command.details =
      "What a backup that was killed has left beside --out is removed first.\n"
      "The copy is consistent and verified before it appears under its name.\n"
      "A coordinator does not start in it: restore makes a state directory of\n"
      "it, with a lineage of its own.\n";
  command.example = "  dilococtl backup state --out /backup/state-monday\n";
  command.run = RunBackup;
  return command;
}

}  // namespace diloco

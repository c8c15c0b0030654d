// `dilococtl restore`: a state directory out of a backup.
#include <string>

#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/lineage_text.h"
#include "coordinator/cli/progress.h"
#include "coordinator/offline/lineage.h"

namespace diloco {
namespace {

absl::Status RunRestore(const Invocation& invocation) {
  const std::string out = invocation.Get("out");
  if (out.empty()) {
    return absl::InvalidArgumentError(
        "restore needs --out DIR, the state.dir of the run file, which must "
        "not exist yet");
  }
  const CopyProgress progress;
  ASSIGN_OR_RETURN(
      const LineageStarted fact,
      RestoreBackup(FileSystem::Posix(), invocation.positional[0], out,
                    RandomBytes(16), invocation.Has("accept-loss"),
                    progress.callback()));
  PrintLineage(invocation, out, fact);
  return absl::OkStatus();
}

}  // namespace

CommandSpec RestoreCommand() {
  CommandSpec command;
  command.name = "restore";
  command.summary = "make a state directory of a backup";
  command.positional = {"BACKUP"};
  command.flags = {
      {"out", "DIR", "the new state directory; must not exist yet (required)"},
      {"accept-loss", "", "give up what is behind damage of the journal"}};
  command.details =
      "The run gets a new lineage, by which workers know to drop what they "
      "hold\n"
      "and to pull theta again. Updates of a round that was open are dropped.\n"
      "Stop the coordinator that it takes the place of.\n"
      "With --accept-loss BACKUP may be a state directory whose journal is "
      "damaged or\n"
      "lacks a file: the new one ends before that, and says which record was "
      "the last.\n"
      "It goes on from the newest version before that which can be rebuilt; "
      "where no\n"
      "image of one is left, with theta and momentum of the newest image.\n";
  command.example = "  dilococtl restore /backup/state-monday --out state\n";
  command.run = RunRestore;
  return command;
}

}  // namespace diloco

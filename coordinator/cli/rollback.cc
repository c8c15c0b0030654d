// `dilococtl rollback`: an earlier version of a run becomes its newest.
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/lineage_text.h"
#include "coordinator/offline/lineage.h"

namespace diloco {
namespace {

absl::Status RunRollback(const Invocation& invocation) {
  if (!invocation.Has("to")) {
    return absl::InvalidArgumentError(
        "rollback needs --to VERSION; dilococtl history lists versions");
  }
  ASSIGN_OR_RETURN(const uint64_t version,
                   ParseCount("to", invocation.Get("to")));
  ASSIGN_OR_RETURN(const LineageStarted fact,
                   RollBack(FileSystem::Posix(), invocation.positional[0],
                            version, RandomBytes(16)));
  PrintLineage(invocation, invocation.positional[0], fact);
  if (!invocation.json) {
    std::printf(
        "the versions after %llu are given up for good, once the run goes on\n",
        static_cast<unsigned long long>(version));
  }
  return absl::OkStatus();
}

}  // namespace

CommandSpec RollbackCommand() {
  CommandSpec command;
  command.name = "rollback";
  command.summary = "go back to an earlier version of a run";
  command.positional = {"DIR"};
  command.flags = {{"to", "VERSION", "the version to go on from (required)"}};
  command.details =
      "Stop the coordinator first. Theta and the outer momentum of that "
      "version\n"
      "are rebuilt from what the state directory keeps; the run then has a "
      "new\n"
      "lineage, by which workers know to drop what they hold and to pull "
      "theta\n"
      "again. A finished run goes on, if train.tokens lets it.\n"
      "The versions after it are given up for good: take a backup before, or "
      "fork the\n"
      "run instead, where they may still be wanted.\n";
  command.example = "  dilococtl rollback state --to 32\n";
  command.run = RunRollback;
  return command;
}

}  // namespace diloco

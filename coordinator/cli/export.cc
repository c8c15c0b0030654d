// `dilococtl export`: the newest version as a Hugging Face directory.
#include "absl/status/status.h"
#include "coordinator/cli/commands.h"

namespace diloco {
namespace {

absl::Status RunExport(const Invocation&) {
  return absl::UnimplementedError("export");
}

}  // namespace

CommandSpec ExportCommand() {
  CommandSpec command;
  command.name = "export";
  command.run = RunExport;
  return command;
}

}  // namespace diloco

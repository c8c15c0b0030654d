// `dilococtl drain WORKER`: the gentle way to take a worker out.
#include "common/base/status_macros.h"
#include "coordinator/cli/admin_reply.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/commands.h"

namespace diloco {
namespace {

absl::Status RunDrain(const Invocation& invocation) {
  AdminClient client(invocation.coordinator);
  ASSIGN_OR_RETURN(
      const v1::AdminReply reply,
      client.DrainWorker(invocation.positional[0], invocation.Get("reason")));
  return PrintReply(invocation, reply);
}

}  // namespace

CommandSpec DrainCommand() {
  CommandSpec command;
  command.name = "drain";
  command.summary = "let a worker hand in what it has done, then leave";
  command.positional = {"WORKER"};
  command.flags = {
      {"reason", "TEXT", "kept in the journal and shown to everyone"}};
  command.example =
      "  dilococtl drain gpu-2 --reason \"moving to another rack\"\n";
  command.run = RunDrain;
  return command;
}

}  // namespace diloco

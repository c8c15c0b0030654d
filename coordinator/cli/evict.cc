// `dilococtl evict WORKER`: the hard way to take a worker out.
#include "common/base/status_macros.h"
#include "coordinator/cli/admin_reply.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/commands.h"

namespace diloco {
namespace {

absl::Status RunEvict(const Invocation& invocation) {
  AdminClient client(invocation.coordinator);
  ASSIGN_OR_RETURN(
      const v1::AdminReply reply,
      client.EvictWorker(invocation.positional[0], invocation.Get("reason")));
  return PrintReply(invocation, reply);
}

}  // namespace

CommandSpec EvictCommand() {
  CommandSpec command;
  command.name = "evict";
  command.summary = "put a worker out at once; it may not join again";
  command.positional = {"WORKER"};
  command.flags = {
      {"reason", "TEXT", "kept in the journal and shown to everyone"}};
  command.example = "  dilococtl evict gpu-2 --reason \"sends bad updates\"\n";
  command.run = RunEvict;
  return command;
}

}  // namespace diloco

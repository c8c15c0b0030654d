// `dilococtl resume`: ends a pause.
#include "common/base/status_macros.h"
#include "coordinator/cli/admin_reply.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/commands.h"

namespace diloco {
namespace {

absl::Status RunResume(const Invocation& invocation) {
  AdminClient client(invocation.coordinator);
  ASSIGN_OR_RETURN(const v1::AdminReply reply,
                   client.SetPaused(false, invocation.Get("reason")));
  return PrintReply(invocation, reply);
}

}  // namespace

CommandSpec ResumeCommand() {
  CommandSpec command;
  command.name = "resume";
  command.summary = "open rounds again after pause";
  command.flags = {
      {"reason", "TEXT", "kept in the journal and shown to everyone"}};
  command.example = "  dilococtl resume\n";
  command.run = RunResume;
  return command;
}

}  // namespace diloco

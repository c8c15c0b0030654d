// `dilococtl pause`: no round opens until `resume`.
#include "common/base/status_macros.h"
#include "coordinator/cli/admin_reply.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/commands.h"

namespace diloco {
namespace {

absl::Status RunPause(const Invocation& invocation) {
  AdminClient client(invocation.coordinator);
  ASSIGN_OR_RETURN(const v1::AdminReply reply,
                   client.SetPaused(true, invocation.Get("reason")));
  return PrintReply(invocation, reply);
}

}  // namespace

CommandSpec PauseCommand() {
  CommandSpec command;
  command.name = "pause";
  command.summary = "open no new round until resume; the open one finishes";
  command.flags = {
      {"reason", "TEXT", "kept in the journal and shown to everyone"}};
  command.example = "  dilococtl pause --reason \"disk is being replaced\"\n";
  command.run = RunPause;
  return command;
}

}  // namespace diloco

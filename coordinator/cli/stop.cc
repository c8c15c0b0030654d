// `dilococtl stop`: ends the run after a round.
#include "common/base/status_macros.h"
#include "coordinator/cli/admin_reply.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/commands.h"

namespace diloco {
namespace {

absl::Status RunStop(const Invocation& invocation) {
  v1::StopRunRequest request;
  request.set_reason(invocation.Get("reason"));
  if (invocation.Has("after-round")) {
    ASSIGN_OR_RETURN(const uint64_t round,
                     ParseCount("after-round", invocation.Get("after-round")));
    if (round == 0) {
      return absl::InvalidArgumentError(
          "--after-round 0: rounds begin with 1; without the flag the run "
          "ends after the open round");
    }
    request.set_after_round(round);
  }
  AdminClient client(invocation.coordinator);
  ASSIGN_OR_RETURN(const v1::AdminReply reply, client.StopRun(request));
  return PrintReply(invocation, reply);
}

}  // namespace

CommandSpec StopCommand() {
  CommandSpec command;
  command.name = "stop";
  command.summary = "end the run after the open round, or after a given one";
  command.flags = {
      {"after-round", "N", "the last round; default: the open one"},
      {"reason", "TEXT", "kept in the journal and shown to everyone"}};
  command.example = "  dilococtl stop\n  dilococtl stop --after-round 40\n";
  command.run = RunStop;
  return command;
}

}  // namespace diloco

// How the commands that change something print the coordinator's answer.
#ifndef COORDINATOR_CLI_ADMIN_REPLY_H_
#define COORDINATOR_CLI_ADMIN_REPLY_H_

#include "absl/status/status.h"
#include "coordinator/cli/command.h"
#include "diloco/v1/admin.pb.h"

namespace diloco {

absl::Status PrintReply(const Invocation& invocation,
                        const v1::AdminReply& reply);

}  // namespace diloco

#endif  // COORDINATOR_CLI_ADMIN_REPLY_H_

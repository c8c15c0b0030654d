// The sending half of the commands that change settings. Used by set and decay.
#ifndef COORDINATOR_CLI_CHANGE_SETTINGS_H_
#define COORDINATOR_CLI_CHANGE_SETTINGS_H_

#include "absl/status/status.h"
#include "coordinator/cli/command.h"
#include "diloco/v1/admin.pb.h"

namespace diloco {

// Asks the coordinator in the name of this process's user, with --reason, and
// prints its answer.
absl::Status ChangeSettings(const Invocation& invocation,
                            v1::ChangeSettingsRequest request);

}  // namespace diloco

#endif  // COORDINATOR_CLI_CHANGE_SETTINGS_H_

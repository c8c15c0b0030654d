#include "coordinator/cli/change_settings.h"

#include "common/base/status_macros.h"
#include "coordinator/cli/admin_reply.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/who.h"

namespace diloco {

absl::Status ChangeSettings(const Invocation& invocation,
                            v1::ChangeSettingsRequest request) {
  request.set_by(WhoAsks());
  request.set_reason(invocation.Get("reason"));
  AdminClient client(invocation.coordinator);
  ASSIGN_OR_RETURN(const v1::AdminReply reply, client.ChangeSettings(request));
  return PrintReply(invocation, reply);
}

}  // namespace diloco

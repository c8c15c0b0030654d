#include "coordinator/cli/admin_reply.h"

#include <cstdio>
#include <string>

#include "common/base/utf8.h"
#include "coordinator/cli/message_json.h"

namespace diloco {

absl::Status PrintReply(const Invocation& invocation,
                        const v1::AdminReply& reply) {
  const std::string text = invocation.json ? JsonLine(MessageToJson(reply))
                           : reply.message().empty()
                               ? "done"
                               : Printable(reply.message());
  std::printf("%s\n", text.c_str());
  return absl::OkStatus();
}

}  // namespace diloco

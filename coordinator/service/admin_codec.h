// The coordinator's reports to the operator's messages.
#ifndef COORDINATOR_SERVICE_ADMIN_CODEC_H_
#define COORDINATOR_SERVICE_ADMIN_CODEC_H_

#include <string>
#include <utility>
#include <vector>

#include "coordinator/runtime/coordinator.h"
#include "diloco/v1/admin.pb.h"

namespace diloco {

void EncodeStatus(const StatusReport& report, uint64_t batch_tokens,
                  v1::StatusResponse* out);

// Events in order until the message would grow over `max_bytes`; the caller of
// the RPC asks again after the last one it got. At least one if there is any.
void EncodeEvents(const EventsOutcome& outcome, uint64_t batch_tokens,
                  size_t max_bytes, v1::EventsResponse* out);

// `fragments` in the order of their numbers.
void EncodeExport(const CoordinatorOptions& options, const StatusReport& status,
                  const std::vector<ResolveOutcome>& fragments,
                  const std::vector<std::pair<std::string, FileRef>>& tokenizer,
                  v1::ExportDescription* out);

}  // namespace diloco

#endif  // COORDINATOR_SERVICE_ADMIN_CODEC_H_

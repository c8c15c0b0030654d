// The coordinator's reports to the operator's messages.
#ifndef COORDINATOR_SERVICE_ADMIN_CODEC_H_
#define COORDINATOR_SERVICE_ADMIN_CODEC_H_

#include <string>
#include <utility>
#include <vector>

#include "coordinator/runtime/coordinator.h"
#include "diloco/v1/admin.pb.h"

namespace diloco {

void EncodeStatus(const StatusReport& report, v1::StatusResponse* out);

// Events in order until the message would grow over `max_bytes`; the caller of
// the RPC asks again after the last one it got. At least one if there is any.
void EncodeEvents(const EventsOutcome& outcome, size_t max_bytes,
                  v1::EventsResponse* out);

// INVALID_ARGUMENT for a key twice, or nothing to change. `peer` stands for who
// does not say who asks.
absl::StatusOr<SettingsChange> DecodeSettingsChange(
    const v1::ChangeSettingsRequest& request, const std::string& peer);
// What was changed, for whoever asked for it.
std::string SettingsMessage(const SettingsChanged& changed);
void EncodeSettings(const SettingsReport& report, v1::SettingsResponse* out);

// `fragments` in the order of their numbers.
void EncodeExport(const CoordinatorOptions& options, const StatusReport& status,
                  const std::vector<ResolveOutcome>& fragments,
                  const std::vector<std::pair<std::string, FileRef>>& tokenizer,
                  v1::ExportDescription* out);

}  // namespace diloco

#endif  // COORDINATOR_SERVICE_ADMIN_CODEC_H_

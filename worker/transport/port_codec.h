// The worker's types to and from the wire. What the coordinator sent is checked
// here: an enum value that this build does not know is INVALID_ARGUMENT, never
// a default.
#ifndef WORKER_TRANSPORT_PORT_CODEC_H_
#define WORKER_TRANSPORT_PORT_CODEC_H_

#include <vector>

#include "absl/status/statusor.h"
#include "diloco/v1/blob.pb.h"
#include "diloco/v1/control.pb.h"
#include "worker/transport/coordinator_port.h"

namespace diloco {

// Fencing of the messages is the port's matter, except last_seen.
void EncodeJoin(const JoinCall& call, v1::JoinRequest* out);
absl::StatusOr<JoinReply> DecodeJoinReply(const v1::JoinResponse& response);
absl::StatusOr<RunView> DecodeView(const v1::RunView& view);
void EncodeReport(const ProgressReport& report,
                  const CoordinatorPort::Traffic& traffic,
                  v1::ProgressReport* out);
absl::StatusOr<std::vector<RemoteFile>> DecodeFiles(
    const v1::ResolveResponse& response);
void EncodeOffer(const UpdateOffer& offer, const std::string& run,
                 v1::UpdateKey* key, v1::UpdateValue* value);

}  // namespace diloco

#endif  // WORKER_TRANSPORT_PORT_CODEC_H_

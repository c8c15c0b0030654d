// Control-plane messages to and from the coordinator's own types. Everything
// that came over the wire is checked here.
#ifndef COORDINATOR_SERVICE_CONTROL_CODEC_H_
#define COORDINATOR_SERVICE_CONTROL_CODEC_H_

#include "absl/status/statusor.h"
#include "common/rpc/protocol.h"
#include "coordinator/core/machine.h"
#include "coordinator/runtime/coordinator.h"
#include "diloco/v1/control.pb.h"

namespace diloco {

// `peer` is gRPC's text, e.g. "ipv4:10.0.0.7:41234". The new session token is
// left to the coordinator.
absl::StatusOr<JoinEvent> DecodeJoin(const v1::JoinRequest& request,
                                     const std::string& peer);
ProtocolRange DecodeProtocol(const v1::ProtocolRange& range);
void EncodeProtocol(const ProtocolRange& range, v1::ProtocolRange* out);

void EncodeView(const ViewOutcome& view,
                const std::optional<FileRef>& eval_shard, v1::RunView* out);

absl::StatusOr<WorkerProgress> DecodeProgress(const v1::ProgressReport& report);
// Session and fencing stay unset.
void EncodeProgress(const WorkerProgress& progress, v1::ProgressReport* out);

void EncodeStep(const VersionStore::Step& step, v1::FileRef* out);
void EncodeResolve(const ResolveOutcome& outcome, v1::ResolveResponse* out);

absl::StatusOr<EvalReportEvent> DecodeEvalReport(const v1::EvalReport& report);

v1::Phase EncodePhase(RunPhase phase);

}  // namespace diloco

#endif  // COORDINATOR_SERVICE_CONTROL_CODEC_H_

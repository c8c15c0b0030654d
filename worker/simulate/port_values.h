// What a CoordinatorPort in the coordinator's own process says and hears: the
// values of one side as those of the other, without messages between.
#ifndef WORKER_SIMULATE_PORT_VALUES_H_
#define WORKER_SIMULATE_PORT_VALUES_H_

#include <optional>
#include <string>
#include <vector>

#include "coordinator/runtime/coordinator.h"
#include "worker/transport/coordinator_port.h"

namespace diloco {

UpdateValue ValueOf(const UpdateOffer& offer);
WorkerProgress ProgressOf(const ProgressReport& report,
                          const CoordinatorPort::Traffic& traffic);
// Of a verdict that is not kSend.
UploadOutcome OutcomeOf(UploadVerdict::Kind kind, const std::string& reason);
std::vector<RemoteFile> FilesOf(const ResolveOutcome& outcome);
// `shard` is the coordinator's eval_shard().
RunView ViewOf(const ViewOutcome& outcome, const std::optional<FileRef>& shard);

}  // namespace diloco

#endif  // WORKER_SIMULATE_PORT_VALUES_H_

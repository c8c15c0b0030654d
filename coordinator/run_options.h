// From the run file to the options of its coordinator: model and theta(0),
// evaluation shard, tokenizer, policy. Used by the daemon (server.cc) and by
// simulated runs (worker/simulate).
#ifndef COORDINATOR_RUN_OPTIONS_H_
#define COORDINATOR_RUN_OPTIONS_H_

#include "absl/status/statusor.h"
#include "coordinator/config.h"
#include "coordinator/runtime/coordinator.h"

namespace diloco {

// The environment but for `fs` is left as it is. Nothing is read yet.
absl::StatusOr<CoordinatorOptions> OptionsOfRun(FileSystem* fs,
                                                const RunConfig& config);

}  // namespace diloco

#endif  // COORDINATOR_RUN_OPTIONS_H_

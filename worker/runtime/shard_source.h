// Training batches of an agent from a token shard, in the order that the run's
// seed gives. Used by `diloco-worker run` and `simulate`: the same shard and
// run give the same batches.
#ifndef WORKER_RUNTIME_SHARD_SOURCE_H_
#define WORKER_RUNTIME_SHARD_SOURCE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/data/token_shard.h"
#include "worker/runtime/agent.h"

namespace diloco {

std::unique_ptr<BatchSource> MakeShardSource(TokenShard shard);

}  // namespace diloco

#endif  // WORKER_RUNTIME_SHARD_SOURCE_H_

// `diloco-worker run`: the daemon. Wires the agent to gRPC, LibTorch and the
// token shard.
#ifndef WORKER_RUN_COMMAND_H_
#define WORKER_RUN_COMMAND_H_

namespace diloco {

// `argv[0]` is the sub-command; returns the process's exit code.
int RunWorker(int argc, char** argv);

}  // namespace diloco

#endif  // WORKER_RUN_COMMAND_H_

// `diloco-worker simulate`: a run of a run file with workers that this process
// simulates, to choose H, rates and codecs before machines are paid for.
#ifndef WORKER_SIMULATE_SIMULATE_COMMAND_H_
#define WORKER_SIMULATE_SIMULATE_COMMAND_H_

namespace diloco {

// `argv[0]` is the sub-command; returns the process's exit code.
int RunSimulate(int argc, char** argv);

}  // namespace diloco

#endif  // WORKER_SIMULATE_SIMULATE_COMMAND_H_

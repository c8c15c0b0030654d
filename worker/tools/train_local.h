// `diloco-worker train-local`: the worker's trainer without a coordinator, as
// baseline and for timing. Called by worker/main.cc and by tests.
#ifndef WORKER_TOOLS_TRAIN_LOCAL_H_
#define WORKER_TOOLS_TRAIN_LOCAL_H_

namespace diloco {

// `argv[0]` is the sub-command; returns the process's exit code.
int RunTrainLocal(int argc, char** argv);

}  // namespace diloco

#endif  // WORKER_TOOLS_TRAIN_LOCAL_H_

// `diloco-worker sample`: text from a Hugging Face model directory. Called by
// worker/main.cc.
#ifndef WORKER_TOOLS_SAMPLE_H_
#define WORKER_TOOLS_SAMPLE_H_

namespace diloco {

// `argv[0]` is the sub-command; returns the process's exit code.
int RunSample(int argc, char** argv);

}  // namespace diloco

#endif  // WORKER_TOOLS_SAMPLE_H_

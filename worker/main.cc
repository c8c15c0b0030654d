// diloco-worker: dispatches to the sub-commands.

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/edit_distance.h"
#include "common/base/utf8.h"
#include "common/base/version.h"
#include "worker/run_command.h"
#include "worker/simulate/simulate_command.h"
#include "worker/tools/flags.h"
#include "worker/tools/sample.h"
#include "worker/tools/tokenize.h"
#include "worker/tools/train_local.h"
#include "worker/tools/train_tokenizer.h"

namespace {

struct Command {
  const char* name;
  int (*run)(int argc, char** argv);
  const char* summary;
};

constexpr Command kCommands[] = {
    {"run", diloco::RunWorker, "train for a coordinator until its run ends"},
    {"train-local", diloco::RunTrainLocal,
     "train on this machine alone, with the same trainer"},
    {"simulate", diloco::RunSimulate,
     "run a run file with simulated workers, in virtual time"},
    {"train-tokenizer", diloco::RunTrainTokenizer,
     "train a SentencePiece BPE tokenizer on a text"},
    {"tokenize", diloco::RunTokenize, "turn text into shards of token ids"},
    {"sample", diloco::RunSample, "generate text from an exported model"},
};

void PrintUsage(std::FILE* out) {
  std::fprintf(out,
               "Usage: diloco-worker COMMAND [flags]\n\n"
               "Commands (each has --help):\n");
  for (const Command& command : kCommands) {
    std::fprintf(out, "  %-16s %s\n", command.name, command.summary);
  }
  std::fprintf(out, "  %-16s %s\n", "version", "print the version");
  std::fprintf(out,
               "\nExit codes: 0 ok, 1 failed, 2 usage, configuration or data, "
               "3 refused\n"
               "by the coordinator, 4 incompatible with it, 75 temporary: "
               "start again.\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("diloco-worker: a command is missing\n\n", stderr);
    PrintUsage(stderr);
    return diloco::kExitUsage;
  }
  if (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0) {
    PrintUsage(stdout);
    return diloco::kExitOk;
  }
  if (std::strcmp(argv[1], "--version") == 0 ||
      std::strcmp(argv[1], "version") == 0) {
    std::printf("diloco-worker %s\n", diloco::BuildVersion());
    return diloco::kExitOk;
  }
  for (const Command& command : kCommands) {
    if (std::strcmp(argv[1], command.name) == 0) {
      const int code = command.run(argc - 1, argv + 1);
      // What was printed must have arrived, or a script takes nothing for it.
      if (code == diloco::kExitOk &&
          (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)) {
        std::fputs("diloco-worker: cannot write the output\n", stderr);
        return diloco::kExitFailed;
      }
      return code;
    }
  }
  std::vector<std::string> names = {"version"};
  for (const Command& command : kCommands) names.push_back(command.name);
  const std::string nearest = diloco::NearestName(argv[1], names);
  std::fprintf(
      stderr, "diloco-worker: unknown command %s%s See diloco-worker --help\n",
      diloco::Printable(argv[1]).c_str(),
      nearest.empty() ? "."
                      : absl::StrCat("; did you mean ", nearest, "?").c_str());
  return diloco::kExitUsage;
}

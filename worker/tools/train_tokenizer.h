// `diloco-worker train-tokenizer`: a SentencePiece BPE model from text. Called
// by worker/main.cc and by tests.
#ifndef WORKER_TOOLS_TRAIN_TOKENIZER_H_
#define WORKER_TOOLS_TRAIN_TOKENIZER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/io/file_system.h"

namespace diloco {

struct TrainTokenizerOptions {
  std::string in;  // Text, or JSON lines when it ends in .jsonl.
  std::string out;
  uint64_t vocab = 2048;
  // A space in front of every text, as Llama 2 has it. Without, decoding gives
  // back the encoded text byte for byte whatever it begins with.
  bool dummy_prefix = false;
};

// Identity normaliser, spaces kept, newline a piece of its own, bytes as
// fallback for characters that the text does not have. Deterministic.
absl::Status TrainTokenizer(FileSystem* fs,
                            const TrainTokenizerOptions& options);

// `argv[0]` is the sub-command; returns the process's exit code.
int RunTrainTokenizer(int argc, char** argv);

}  // namespace diloco

#endif  // WORKER_TOOLS_TRAIN_TOKENIZER_H_

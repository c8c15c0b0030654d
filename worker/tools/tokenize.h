// `diloco-worker tokenize`: text or JSON lines to shards of token ids and a
// dataset.json. Called by worker/main.cc and by tests.
#ifndef WORKER_TOOLS_TOKENIZE_H_
#define WORKER_TOOLS_TOKENIZE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/data/dataset_manifest.h"
#include "common/io/file_system.h"
#include "worker/data/token_file.h"
#include "worker/data/tokenizer.h"
#include "worker/tools/documents.h"

namespace diloco {

struct TokenizeOptions {
  std::string in;
  std::string out;  // Directory; made when missing.
  DocumentForm form = DocumentForm::kParagraphs;
  // Path of a SentencePiece model, copied to OUT/tokenizer.model, or "bytes".
  std::string tokenizer_file = kBytesTokenizer;
  std::optional<TokenFormat> dtype;  // Unset: what the tokenizer's size needs.
  uint64_t valid_every = 0;  // Every n-th document is validation; 0: none.
  uint64_t parts = 1;        // Training documents go to the parts in turn.
};

// Writes OUT/train-0.bin ... train-(parts-1).bin, valid.bin (with valid_every)
// and dataset.json. Each document is followed by the tokenizer's separator, or
// by a newline when it has none. dataset.json appears last, and
// an old one goes first: shards without it are of a run that did not end.
// INVALID_ARGUMENT also when the tokenizer does not fit `dtype`.
absl::StatusOr<DatasetManifest> Tokenize(FileSystem* fs,
                                         const Tokenizer& tokenizer,
                                         const TokenizeOptions& options);

// `argv[0]` is the sub-command; returns the process's exit code.
int RunTokenize(int argc, char** argv);

}  // namespace diloco

#endif  // WORKER_TOOLS_TOKENIZE_H_

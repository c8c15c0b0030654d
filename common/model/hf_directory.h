// A Hugging Face model directory, in and out: config.json, safetensors weights
// (one file or sharded with an index), tokenizer files. Architectures: llama,
// and qwen3 for qk_norm. Used for theta(0) `model.from: DIR`, export and
// sample.
#ifndef COMMON_MODEL_HF_DIRECTORY_H_
#define COMMON_MODEL_HF_DIRECTORY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/io/file_system.h"
#include "common/model/model_config.h"
#include "common/tensor/layout.h"

namespace diloco {

// config.json of `dir`, keys of transformers 4 and 5. INVALID_ARGUMENT names
// what is not supported: architecture, biases, activation, rope type.
absl::StatusOr<ModelConfig> ReadHfConfig(FileSystem* fs,
                                         const std::string& dir);
// The same over the text; `name` is the file in messages.
absl::StatusOr<ModelConfig> ParseHfConfig(const std::string& name,
                                          absl::string_view text);

// Fills `theta` (layout.elements values; padding 0) from the weights of `dir`.
// Names and shapes must match the layout exactly; the error lists what is
// missing and what is unexpected. A tied model's lm_head.weight is accepted
// only when it equals the embedding. Non-finite values are refused by name.
absl::Status ReadHfWeights(FileSystem* fs, const std::string& dir,
                           const ModelConfig& config, const Layout& layout,
                           absl::Span<float> theta);

// The tokenizer files of a Hugging Face directory that exist, as paths.
std::vector<std::string> HfTokenizerFiles(FileSystem* fs,
                                          const std::string& dir);

// The name of a tokenizer file in an export: its own, but tokenizer.model for
// any SentencePiece model (*.model), where tools look for it.
std::string HfTokenizerName(const std::string& path);

// Letters, digits, '.', '_' and '-', not a hidden file: the names that files of
// an export may have.
bool IsPlainFileName(absl::string_view name);

// The text of config.json, without special token ids; ParseHfConfig reads it
// back.
std::string HfConfigJson(const ModelConfig& config);

struct HfExport {
  ModelConfig config;
  const Layout* layout = nullptr;            // Not owned.
  absl::Span<const float> theta;             // layout->elements values.
  std::vector<std::string> tokenizer_files;  // Copied byte for byte.
  std::string model_card;                    // README.md; empty: none.
};

// Writes `dir`, which must not exist, under a temporary name beside it and
// renames it when everything is durable. fp32 weights in one file. A
// SentencePiece BPE model among the tokenizer files also gives tokenizer.json
// and tokenizer_config.json, unless they are given.
absl::Status WriteHfDirectory(FileSystem* fs, const std::string& dir,
                              const HfExport& contents);

// For who learns theta only after long work: whether WriteHfDirectory could
// write all the rest now. Does so and removes it again.
absl::Status TryHfDirectory(FileSystem* fs, const std::string& dir,
                            const HfExport& contents);

}  // namespace diloco

#endif  // COMMON_MODEL_HF_DIRECTORY_H_

// Text to token ids and back: SentencePiece models, and plain bytes. Used by
// tokenize, sample and train-local.
#ifndef WORKER_DATA_TOKENIZER_H_
#define WORKER_DATA_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/io/file_system.h"

namespace diloco {

inline constexpr char kBytesTokenizer[] = "bytes";

// Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Special tokens in the text are ordinary text; nothing is added in front or
  // at the end beyond what the model file itself asks for.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text) const = 0;
  // INVALID_ARGUMENT for an id outside [0, size()).
  virtual absl::StatusOr<std::string> Decode(
      absl::Span<const int32_t> ids) const = 0;
  virtual int32_t size() const = 0;
  // What separates documents.
  virtual std::optional<int32_t> eos_id() const = 0;
};

// "bytes" (256 ids, one per byte, no separator), or the path of a SentencePiece
// model. INVALID_ARGUMENT for a file that is none.
absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(
    FileSystem* fs, const std::string& name);

}  // namespace diloco

#endif  // WORKER_DATA_TOKENIZER_H_

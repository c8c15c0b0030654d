// A SentencePiece model file (tokenizer.model) read without the library: what
// an export needs to describe the same tokenizer to Hugging Face tools.
#ifndef COMMON_MODEL_SENTENCEPIECE_MODEL_H_
#define COMMON_MODEL_SENTENCEPIECE_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace diloco {

struct SentencePieceModel {
  // Numbers as in sentencepiece_model.proto.
  enum class Type {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6,
  };
  enum class Algorithm { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::kNormal;
  };

  std::vector<Piece> pieces;  // By id.
  Algorithm algorithm = Algorithm::kUnigram;
  bool byte_fallback = false;
  // -1: there is none.
  int32_t unk_id = 0;
  int32_t bos_id = 1;
  int32_t eos_id = 2;
  int32_t pad_id = -1;
  bool suffix_whitespace = false;  // The space goes behind the word.
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  std::string charsmap;  // Compiled normalisation rules; empty: identity.
};

// INVALID_ARGUMENT when the bytes are no such model; `name` is the file in the
// message. Checks that ids and pieces are consistent.
absl::StatusOr<SentencePieceModel> ParseSentencePieceModel(
    const std::string& name, absl::string_view bytes);

// tokenizer.json of the same tokenizer (BPE with merges derived from the
// scores). UNIMPLEMENTED names what has no counterpart there.
absl::StatusOr<std::string> TokenizerJson(const SentencePieceModel& model);

// tokenizer_config.json that goes with it.
std::string TokenizerConfigJson(const SentencePieceModel& model,
                                int64_t max_positions);

}  // namespace diloco

#endif  // COMMON_MODEL_SENTENCEPIECE_MODEL_H_

// The SentencePiece library behind standard types only: its header declares
// absl::string_view as std::string_view, which does not go together with
// Abseil's own in one file. Used by tokenizer.cc and by train-tokenizer.
#ifndef WORKER_DATA_SENTENCEPIECE_ENGINE_H_
#define WORKER_DATA_SENTENCEPIECE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace diloco {

// Thread-safe after Load.
class SentencePieceEngine {
 public:
  SentencePieceEngine();
  ~SentencePieceEngine();

  // Each returns an empty string, or what went wrong.
  std::string Load(std::string_view serialized);
  std::string Encode(std::string_view text, std::vector<int32_t>* ids) const;
  std::string Decode(const std::vector<int32_t>& ids, std::string* text) const;

  int32_t size() const;
  int32_t eos_id() const;  // -1: none.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Trains a model with SentencePiece's own options ({"vocab_size", "2048"}, ...)
// on the sentences that `next` yields until it returns false. Returns an empty
// string, or what went wrong.
std::string TrainSentencePiece(
    const std::unordered_map<std::string, std::string>& options,
    const std::function<bool(std::string*)>& next,
    std::string* serialized_model);

}  // namespace diloco

#endif  // WORKER_DATA_SENTENCEPIECE_ENGINE_H_

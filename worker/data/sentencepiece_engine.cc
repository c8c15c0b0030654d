// Implements sentencepiece_engine.h. Includes nothing of Abseil.
#include "worker/data/sentencepiece_engine.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

namespace diloco {
namespace {

std::string ErrorText(const sentencepiece::util::Status& status) {
  return status.ok() ? "" : status.ToString();
}

class CallbackIterator final : public sentencepiece::SentenceIterator {
 public:
  explicit CallbackIterator(const std::function<bool(std::string*)>& next)
      : next_(next) {
    Next();
  }
  bool done() const override { return done_; }
  void Next() override { done_ = !next_(&value_); }
  const std::string& value() const override { return value_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::function<bool(std::string*)>& next_;
  std::string value_;
  bool done_ = false;
};

}  // namespace

struct SentencePieceEngine::Impl {
  sentencepiece::SentencePieceProcessor processor;
};

SentencePieceEngine::SentencePieceEngine() : impl_(std::make_unique<Impl>()) {}
SentencePieceEngine::~SentencePieceEngine() = default;

std::string SentencePieceEngine::Load(std::string_view serialized) {
  return ErrorText(impl_->processor.LoadFromSerializedProto(serialized));
}

std::string SentencePieceEngine::Encode(std::string_view text,
                                        std::vector<int32_t>* ids) const {
  return ErrorText(impl_->processor.Encode(text, ids));
}

std::string SentencePieceEngine::Decode(const std::vector<int32_t>& ids,
                                        std::string* text) const {
  return ErrorText(impl_->processor.Decode(ids, text));
}

int32_t SentencePieceEngine::size() const {
  return impl_->processor.GetPieceSize();
}

int32_t SentencePieceEngine::eos_id() const {
  return impl_->processor.eos_id();
}

std::string TrainSentencePiece(
    const std::unordered_map<std::string, std::string>& options,
    const std::function<bool(std::string*)>& next,
    std::string* serialized_model) {
  CallbackIterator sentences(next);
  return ErrorText(sentencepiece::SentencePieceTrainer::Train(
      options, &sentences, serialized_model));
}

}  // namespace diloco

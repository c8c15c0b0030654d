#include "worker/data/sentencepiece/plugin.h"

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

class ProcessorImpl final : public SentencePiecePlugin::Processor {
 public:
  std::string Load(std::string_view serialized) override {
    return ErrorText(processor_.LoadFromSerializedProto(serialized));
  }
  std::string Encode(std::string_view text,
                     std::vector<int32_t>* ids) const override {
    return ErrorText(processor_.Encode(text, ids));
  }
  std::string Decode(const std::vector<int32_t>& ids,
                     std::string* text) const override {
    return ErrorText(processor_.Decode(ids, text));
  }
  int32_t size() const override { return processor_.GetPieceSize(); }
  int32_t eos_id() const override { return processor_.eos_id(); }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

class PluginImpl final : public SentencePiecePlugin {
 public:
  std::unique_ptr<Processor> NewProcessor() const override {
    return std::make_unique<ProcessorImpl>();
  }
  std::string Train(const std::unordered_map<std::string, std::string>& options,
                    const std::function<bool(std::string*)>& next,
                    std::string* serialized_model) const override {
    CallbackIterator sentences(next);
    return ErrorText(sentencepiece::SentencePieceTrainer::Train(
        options, &sentences, serialized_model));
  }
};

}  // namespace
}  // namespace diloco

extern "C" __attribute__((visibility("default")))
const diloco::SentencePiecePlugin*
DilocoSentencePiece() {
  static const diloco::PluginImpl plugin;
  return &plugin;
}

// The SentencePiece library behind a plug-in of its own. Its shared library
// carries and exports an old protobuf runtime, which must not meet the one that
// gRPC uses: sentencepiece_engine.cc loads this plug-in into a scope apart.
// Standard types only: its headers also declare absl::string_view their way.
#ifndef WORKER_DATA_SENTENCEPIECE_PLUGIN_H_
#define WORKER_DATA_SENTENCEPIECE_PLUGIN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace diloco {

// Texts returned are empty, or say what went wrong.
class SentencePiecePlugin {
 public:
  class Processor {
   public:
    virtual ~Processor() = default;
    virtual std::string Load(std::string_view serialized) = 0;
    virtual std::string Encode(std::string_view text,
                               std::vector<int32_t>* ids) const = 0;
    virtual std::string Decode(const std::vector<int32_t>& ids,
                               std::string* text) const = 0;
    virtual int32_t size() const = 0;
    virtual int32_t eos_id() const = 0;
  };
  virtual ~SentencePiecePlugin() = default;
  virtual std::unique_ptr<Processor> NewProcessor() const = 0;
  virtual std::string Train(
      const std::unordered_map<std::string, std::string>& options,
      const std::function<bool(std::string*)>& next,
      std::string* serialized_model) const = 0;
};

// The symbol that the plug-in exports.
inline constexpr char kSentencePiecePluginSymbol[] = "DilocoSentencePiece";
using SentencePiecePluginEntry = const SentencePiecePlugin* (*)();

}  // namespace diloco

#endif  // WORKER_DATA_SENTENCEPIECE_PLUGIN_H_

// Implements tokenizer.h.
#include "worker/data/tokenizer.h"

#include <string_view>

#include "common/base/status_macros.h"
#include "worker/data/sentencepiece_engine.h"

namespace diloco {
namespace {

absl::Status CheckIds(absl::Span<const int32_t> ids, int32_t size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < size) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "token id ", ids[i], " at position ", i, ", the tokenizer has ", size));
  }
  return absl::OkStatus();
}

class BytesTokenizer final : public Tokenizer {
 public:
  absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text) const override {
    std::vector<int32_t> ids;
    ids.reserve(text.size());
    for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
    return ids;
  }
  absl::StatusOr<std::string> Decode(
      absl::Span<const int32_t> ids) const override {
    RETURN_IF_ERROR(CheckIds(ids, size()));
    return std::string(ids.begin(), ids.end());
  }
  int32_t size() const override { return 256; }
  std::optional<int32_t> eos_id() const override { return std::nullopt; }
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Open(
      FileSystem* fs, const std::string& path) {
    ASSIGN_OR_RETURN(const std::string content, ReadFile(fs, path));
    auto tokenizer = std::make_unique<SentencePieceTokenizer>();
    const std::string error = tokenizer->engine_.Load(content);
    if (!error.empty() || tokenizer->engine_.size() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": not a SentencePiece model",
                       error.empty() ? "" : ": ", error));
    }
    return std::unique_ptr<Tokenizer>(std::move(tokenizer));
  }

  absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text) const override {
    std::vector<int32_t> ids;
    const std::string error =
        engine_.Encode(std::string_view(text.data(), text.size()), &ids);
    if (!error.empty()) return absl::InternalError(error);
    return ids;
  }
  absl::StatusOr<std::string> Decode(
      absl::Span<const int32_t> ids) const override {
    RETURN_IF_ERROR(CheckIds(ids, size()));
    std::string text;
    const std::string error =
        engine_.Decode(std::vector<int32_t>(ids.begin(), ids.end()), &text);
    if (!error.empty()) return absl::InternalError(error);
    return text;
  }
  int32_t size() const override { return engine_.size(); }
  std::optional<int32_t> eos_id() const override {
    const int32_t id = engine_.eos_id();
    return id < 0 ? std::nullopt : std::optional<int32_t>(id);
  }

 private:
  SentencePieceEngine engine_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(
    FileSystem* fs, const std::string& name) {
  if (name == kBytesTokenizer) {
    return std::unique_ptr<Tokenizer>(std::make_unique<BytesTokenizer>());
  }
  return SentencePieceTokenizer::Open(fs, name);
}

}  // namespace diloco

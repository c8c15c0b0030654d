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

std::optional<size_t> FindInvalidUtf8(absl::string_view text) {
  const auto continues = [&](size_t at) {
    return at < text.size() && (text[at] & 0xC0) == 0x80;
  };
  size_t i = 0;
  while (i < text.size()) {
    const uint8_t lead = static_cast<uint8_t>(text[i]);
    size_t length = 1;
    uint32_t smallest = 0;
    uint32_t code = lead;
    if (lead >= 0x80) {
      if (lead >= 0xF0 && lead <= 0xF4) {
        length = 4, smallest = 0x10000, code = lead & 0x07;
      } else if (lead >= 0xE0 && lead < 0xF0) {
        length = 3, smallest = 0x800, code = lead & 0x0F;
      } else if (lead >= 0xC2 && lead < 0xE0) {
        length = 2, smallest = 0x80, code = lead & 0x1F;
      } else {
        return i;
      }
      for (size_t k = 1; k < length; ++k) {
        if (!continues(i + k)) return i;
        code = code << 6 | (static_cast<uint8_t>(text[i + k]) & 0x3F);
      }
      const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
      if (code < smallest || code > 0x10FFFF || surrogate) return i;
    }
    i += length;
  }
  return std::nullopt;
}

}  // namespace diloco

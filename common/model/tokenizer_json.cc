// A SentencePiece BPE model as tokenizer.json. SentencePiece joins the
// neighbouring pair whose union scores highest; Hugging Face's BPE joins the
// pair that stands first in a list of merges: so every split of a piece into
// two pieces is a merge, listed by falling score.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/model/sentencepiece_model.h"

namespace diloco {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Type = SentencePieceModel::Type;

constexpr char kSpace[] = "\xe2\x96\x81";  // U+2581, SentencePiece's blank.

size_t CharacterBytes(unsigned char first) {
  return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

size_t Characters(const std::string& text) {
  size_t count = 0;
  for (size_t i = 0; i < text.size(); i += CharacterBytes(text[i])) ++count;
  return count;
}

struct Merge {
  float score;
  int left, right;
};

std::vector<Merge> DeriveMerges(const SentencePieceModel& model) {
  std::unordered_map<std::string, int> ids;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    // Only these take part in joining; user-defined symbols stand alone.
    if (model.pieces[id].type == Type::kNormal) {
      ids.emplace(model.pieces[id].text, static_cast<int>(id));
    }
  }
  std::vector<Merge> merges;
  for (const auto& piece : model.pieces) {
    if (piece.type != Type::kNormal) continue;
    const std::string& text = piece.text;
    for (size_t cut = CharacterBytes(text[0]); cut < text.size();
         cut += CharacterBytes(text[cut])) {
      const auto left = ids.find(text.substr(0, cut));
      const auto right = ids.find(text.substr(cut));
      if (left == ids.end() || right == ids.end()) continue;
      merges.push_back({piece.score, left->second, right->second});
    }
  }
  std::sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    if (a.score != b.score) return a.score > b.score;
    return std::tie(a.left, a.right) < std::tie(b.left, b.right);
  });
  return merges;
}

OrderedJson Replace(const OrderedJson& pattern, const char* content) {
  return {{"type", "Replace"}, {"pattern", pattern}, {"content", content}};
}

// SentencePiece leaves its user-defined symbols out of normalisation; here only
// added tokens escape it.
bool Normalizes(const SentencePieceModel& model) {
  return !model.charsmap.empty() || model.remove_extra_whitespaces;
}

// Whether a piece must be an added token. Special pieces are; so are
// user-defined symbols, except single characters in a model that does not
// normalise: those are safe as plain entries (no merge has them), and as added
// tokens they would cut the text, which matters for the dummy prefix.
bool IsAdded(const SentencePieceModel& model,
             const SentencePieceModel::Piece& piece) {
  if (piece.type == Type::kControl || piece.type == Type::kUnknown) return true;
  return piece.type == Type::kUserDefined &&
         (Normalizes(model) || Characters(piece.text) > 1);
}

bool HasAddedSymbols(const SentencePieceModel& model) {
  return std::any_of(model.pieces.begin(), model.pieces.end(),
                     [&](const SentencePieceModel::Piece& piece) {
                       return piece.type == Type::kUserDefined &&
                              IsAdded(model, piece);
                     });
}

// What SentencePiece does to the text first. The patterns are Oniguruma's,
// where ^ and $ would match at each line.
OrderedJson Normalizer(const SentencePieceModel& model) {
  OrderedJson steps = OrderedJson::array();
  if (!model.charsmap.empty()) {
    steps.push_back(
        {{"type", "Precompiled"},
         {"precompiled_charsmap", absl::Base64Escape(model.charsmap)}});
  }
  if (model.remove_extra_whitespaces) {
    // Added tokens cut the text, and blanks beside them stay.
    if (!HasAddedSymbols(model)) {
      steps.push_back(Replace({{"Regex", "\\A +| +\\z"}}, ""));
    }
    steps.push_back(Replace({{"Regex", " {2,}"}}, " "));
  }
  // With symbols that cut the text the prefix comes from Metaspace instead,
  // which knows where the text begins (but adds none before a blank).
  if (model.add_dummy_prefix && !HasAddedSymbols(model)) {
    steps.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  }
  if (steps.empty()) return nullptr;
  return {{"type", "Sequence"}, {"normalizers", steps}};
}

OrderedJson Decoder(const SentencePieceModel& model) {
  OrderedJson steps = OrderedJson::array();
  steps.push_back(Replace({{"String", kSpace}}, " "));
  if (model.byte_fallback) steps.push_back({{"type", "ByteFallback"}});
  steps.push_back({{"type", "Fuse"}});
  if (model.add_dummy_prefix) {
    steps.push_back(
        {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return {{"type", "Sequence"}, {"decoders", steps}};
}

}  // namespace

absl::StatusOr<std::string> TokenizerJson(const SentencePieceModel& model) {
  if (model.algorithm != SentencePieceModel::Algorithm::kBpe) {
    return absl::UnimplementedError(
        "only BPE models of SentencePiece have a tokenizer.json here");
  }
  if (model.suffix_whitespace || !model.escape_whitespaces) {
    return absl::UnimplementedError(
        "a SentencePiece model with treat_whitespace_as_suffix, or without "
        "escape_whitespaces, has no tokenizer.json here");
  }
  // Appended to directly: inserting by key searches from the start.
  OrderedJson::object_t vocab;
  std::unordered_set<std::string> seen;
  OrderedJson added = OrderedJson::array();
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    if (!seen.insert(piece.text).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the SentencePiece model has the piece \"", piece.text, "\" twice"));
    }
    vocab.push_back({piece.text, id});
    if (!IsAdded(model, piece)) continue;
    added.push_back({{"id", id},
                     {"content", piece.text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", piece.type != Type::kUserDefined}});
  }
  OrderedJson merges = OrderedJson::array();
  for (const Merge& merge : DeriveMerges(model)) {
    merges.push_back(
        {model.pieces[merge.left].text, model.pieces[merge.right].text});
  }
  const OrderedJson unknown = model.unk_id >= 0
                                  ? OrderedJson(model.pieces[model.unk_id].text)
                                  : OrderedJson(nullptr);
  const OrderedJson root = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", Normalizer(model)},
      {"pre_tokenizer",
       {{"type", "Metaspace"},
        {"replacement", kSpace},
        {"prepend_scheme",
         model.add_dummy_prefix && HasAddedSymbols(model) ? "first" : "never"},
        {"split", false}}},
      {"post_processor", nullptr},
      {"decoder", Decoder(model)},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", unknown},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", true},
        {"byte_fallback", model.byte_fallback},
        {"ignore_merges", false},
        {"vocab", std::move(vocab)},
        {"merges", merges}}}};
  return root.dump(1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string TokenizerConfigJson(const SentencePieceModel& model,
                                int64_t max_positions) {
  const auto token = [&](int32_t id) {
    return id < 0 ? OrderedJson(nullptr) : OrderedJson(model.pieces[id].text);
  };
  const OrderedJson root = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                            {"bos_token", token(model.bos_id)},
                            {"eos_token", token(model.eos_id)},
                            {"unk_token", token(model.unk_id)},
                            {"pad_token", token(model.pad_id)},
                            {"clean_up_tokenization_spaces", false},
                            {"model_max_length", max_positions}};
  return root.dump(1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace diloco

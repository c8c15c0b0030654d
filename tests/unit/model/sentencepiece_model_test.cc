// SentencePiece models and the tokenizer.json made of them.
#include "common/model/sentencepiece_model.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

using Type = SentencePieceModel::Type;

std::string Bytes(int number, const std::string& value) {
  REQUIRE(value.size() < 128);
  return std::string{static_cast<char>(number << 3 | 2),
                     static_cast<char>(value.size())} +
         value;
}

std::string Number(int number, uint8_t value) {
  std::string out;
  int tag = number << 3;
  while (tag >= 128) {
    out += static_cast<char>(tag | 128);
    tag >>= 7;
  }
  out += static_cast<char>(tag);
  return out + static_cast<char>(value);
}

std::string Piece(const std::string& text, float score, Type type) {
  std::string bits(4, '\0');
  std::memcpy(bits.data(), &score, 4);
  return Bytes(1, Bytes(1, text) + std::string{2 << 3 | 5} + bits +
                      Number(3, static_cast<uint8_t>(type)));
}

// <unk> <s> </s> newline, three letters and two joined pieces.
std::string Sample(uint8_t algorithm) {
  return Piece("<unk>", 0, Type::kUnknown) + Piece("<s>", 0, Type::kControl) +
         Piece("</s>", 0, Type::kControl) + Piece("\n", 0, Type::kUserDefined) +
         Piece("ab", 0, Type::kNormal) + Piece("abc", -1, Type::kNormal) +
         Piece("bc", -2, Type::kNormal) + Piece("a", -3, Type::kNormal) +
         Piece("b", -4, Type::kNormal) + Piece("c", -5, Type::kNormal) +
         Bytes(2, Number(3, algorithm) + Number(40, 0) + Number(41, 1) +
                      Number(42, 2)) +
         Bytes(3, Number(3, 1) + Number(4, 0) + Number(5, 1));
}

TEST_CASE("a SentencePiece model is read without its library") {
  const auto model = ParseSentencePieceModel("t.model", Sample(2));
  CAPTURE(model.status().ToString());
  REQUIRE(model.ok());
  REQUIRE(model->pieces.size() == 10);
  CHECK(model->pieces[5].text == "abc");
  CHECK(model->pieces[5].score == -1.0f);
  CHECK(model->pieces[3].type == Type::kUserDefined);
  CHECK(model->algorithm == SentencePieceModel::Algorithm::kBpe);
  CHECK(model->unk_id == 0);
  CHECK(model->eos_id == 2);
  CHECK(model->pad_id == -1);
  CHECK(model->add_dummy_prefix);
  CHECK_FALSE(model->remove_extra_whitespaces);
}

TEST_CASE("merges follow from the scores, best first, each split once") {
  const auto text = TokenizerJson(*ParseSentencePieceModel("t", Sample(2)));
  REQUIRE(text.ok());
  const auto json = nlohmann::json::parse(*text);
  using Pair = std::vector<std::string>;
  const auto merges = json["model"]["merges"].get<std::vector<Pair>>();
  CHECK(merges ==
        std::vector<Pair>{{"a", "b"}, {"ab", "c"}, {"a", "bc"}, {"b", "c"}});
  CHECK(json["model"]["vocab"]["\n"] == 3);
  CHECK(json["model"]["vocab"]["abc"] == 5);
  CHECK(json["model"]["unk_token"] == "<unk>");
  CHECK(json["added_tokens"].size() == 3);
  CHECK(json["pre_tokenizer"]["prepend_scheme"] == "never");
  CHECK(json["normalizer"]["normalizers"][0]["type"] == "Prepend");
}

TEST_CASE("a symbol that normalisation would change becomes an added token") {
  auto model = *ParseSentencePieceModel("t", Sample(2));
  model.remove_extra_whitespaces = true;
  const auto json = nlohmann::json::parse(*TokenizerJson(model));
  REQUIRE(json["added_tokens"].size() == 4);
  CHECK(json["added_tokens"][3]["content"] == "\n");
  CHECK(json["added_tokens"][3]["special"] == false);
  // The prefix then comes from Metaspace: only where the text begins.
  CHECK(json["pre_tokenizer"]["prepend_scheme"] == "first");
  REQUIRE(json["normalizer"]["normalizers"].size() == 1);
  CHECK(json["normalizer"]["normalizers"][0]["pattern"]["Regex"] == " {2,}");
}

TEST_CASE("what has no counterpart in tokenizer.json is refused by name") {
  const auto unigram = TokenizerJson(*ParseSentencePieceModel("t", Sample(1)));
  CHECK(unigram.status().code() == absl::StatusCode::kUnimplemented);
  CHECK(absl::StrContains(unigram.status().message(), "BPE"));
}

TEST_CASE("damaged SentencePiece models are refused, whatever the damage") {
  const std::string good = Sample(2);
  for (size_t cut = 0; cut < good.size(); ++cut) {
    // Any verdict at a field boundary; no crash anywhere.
    ParseSentencePieceModel("t", good.substr(0, cut)).status().IgnoreError();
  }
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string flipped = good;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const auto model = ParseSentencePieceModel("t", flipped);
    if (model.ok()) TokenizerJson(*model).status().IgnoreError();
  }
  for (const std::string& bad :
       {std::string(), std::string("hello"), std::string(20, '\xff'),
        good.substr(0, good.size() - 1)}) {
    const auto refused = ParseSentencePieceModel("t.model", bad);
    REQUIRE(refused.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StartsWith(refused.status().message(),
                           "t.model: no SentencePiece model"));
  }
}

}  // namespace
}  // namespace diloco

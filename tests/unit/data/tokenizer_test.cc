// Tokenizers: bytes, and SentencePiece models trained here and given.
#include "worker/data/tokenizer.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/data_files.h"
#include "worker/data/sentencepiece_engine.h"

namespace diloco {
namespace {

using testing::kFs;

TEST_CASE("the bytes tokenizer gives every byte back") {
  const auto tokenizer = OpenTokenizer(kFs, kBytesTokenizer);
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  const auto ids = (*tokenizer)->Encode(all);
  REQUIRE(ids->size() == 256);
  REQUIRE(ids->back() == 255);
  REQUIRE(*(*tokenizer)->Decode(*ids) == all);
  REQUIRE((*tokenizer)->size() == 256);
  REQUIRE_FALSE((*tokenizer)->eos_id().has_value());
  REQUIRE((*tokenizer)->Decode({256}).status().code() ==
          absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a file that is no model is refused by name") {
  const TempDir dir;
  const std::string path = dir.Write("bad.model", "not a model at all");
  const absl::Status status = OpenTokenizer(kFs, path).status();
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE_THAT(std::string(status.message()), Catch::Contains(path));
  REQUIRE(OpenTokenizer(kFs, dir.File("none")).status().code() ==
          absl::StatusCode::kNotFound);
}

TEST_CASE("C2.3 ids equal those of the sentencepiece package") {
  const char* fixtures = std::getenv("DILOCO_FIXTURES");
  if (fixtures == nullptr) {
    WARN("skipped: DILOCO_FIXTURES is not set");
    return;
  }
  const std::string folder = std::string(fixtures) + "/tokenizer/";
  const nlohmann::json cases =
      nlohmann::json::parse(*ReadFile(kFs, folder + "cases.json"));
  for (const char* name : {"unigram", "bpe"}) {
    const auto tokenizer = OpenTokenizer(kFs, folder + name + "512.model");
    REQUIRE(tokenizer.ok());
    REQUIRE((*tokenizer)->size() == 512);
    REQUIRE((*tokenizer)->eos_id() == 2);
    for (const auto& test : cases["cases"]) {
      std::string text;
      const std::string hex = test["utf8_hex"];
      for (size_t i = 0; i < hex.size(); i += 2) {
        text.push_back(
            static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
      }
      INFO(name << ": " << test["name"]);
      const auto ids = (*tokenizer)->Encode(text);
      REQUIRE(ids.ok());
      REQUIRE(*ids == test[name]["ids"].get<std::vector<int32_t>>());
      REQUIRE(*(*tokenizer)->Decode(*ids) == test[name]["decoded"]);
    }
  }
}

TEST_CASE("C2.3 control tokens in raw text are ordinary text") {
  std::vector<std::string> lines(200, "the quick brown fox jumps over it");
  size_t next = 0;
  std::string model;
  const std::string error = TrainSentencePiece(
      {{"vocab_size", "290"},
       {"model_type", "bpe"},
       {"byte_fallback", "true"},
       {"minloglevel", "2"}},
      [&](std::string* line) {
        if (next == lines.size()) return false;
        *line = lines[next++];
        return true;
      },
      &model);
  REQUIRE(error == "");
  const TempDir dir;
  const auto tokenizer = OpenTokenizer(kFs, dir.Write("t.model", model));
  REQUIRE(tokenizer.ok());
  const auto ids = (*tokenizer)->Encode("a<s>b</s>");
  for (const int32_t id : *ids) REQUIRE(id > 2);
  REQUIRE(*(*tokenizer)->Decode(*ids) == "a<s>b</s>");
}

}  // namespace
}  // namespace diloco

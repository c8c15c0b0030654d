// tokenize and train-tokenizer: documents, splits, widths, bad records.
#include "worker/tools/tokenize.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/base/logging.h"
#include "common/io/digest.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "worker/data/token_dataset.h"
#include "worker/tools/flags.h"
#include "worker/tools/train_tokenizer.h"

namespace diloco {
namespace {

FileSystem* const kFs = FileSystem::Posix();

// As many ids as asked for; a byte is an id, the last id separates documents.
class WideTokenizer final : public Tokenizer {
 public:
  explicit WideTokenizer(int32_t size) : size_(size) {}
  absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text) const override {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
    return ids;
  }
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t>) const override {
    return absl::UnimplementedError("not needed");
  }
  int32_t size() const override { return size_; }
  std::optional<int32_t> eos_id() const override { return size_ - 1; }

 private:
  const int32_t size_;
};

// Documents of the file as the reader gives them, joined with '|'.
absl::StatusOr<std::string> ReadAll(const std::string& path,
                                    DocumentForm form) {
  absl::StatusOr<DocumentReader> reader = DocumentReader::Open(kFs, path, form);
  if (!reader.ok()) return reader.status();
  std::string all;
  std::string text;
  while (true) {
    const absl::StatusOr<bool> more = reader->Next(&text);
    if (!more.ok()) return more.status();
    if (!*more) return all;
    all += (all.empty() ? "" : "|") + text;
  }
}

std::vector<int32_t> Ids(const std::string& path, TokenFormat format) {
  const auto file = TokenFile::Open(kFs, path, format);
  std::vector<int32_t> ids(file->tokens());
  REQUIRE(file->Read(0, absl::MakeSpan(ids)).ok());
  return ids;
}

TEST_CASE("blank lines separate documents, or every line is one") {
  const TempDir dir;
  const std::string path =
      dir.Write("a.txt", "\xEF\xBB\xBFone\r\ntwo\r\n\r\n  \n\nthree\nfour");
  REQUIRE(*ReadAll(path, DocumentForm::kParagraphs) == "one\ntwo|three\nfour");
  REQUIRE(*ReadAll(path, DocumentForm::kLines) == "one|two|three|four");
  REQUIRE(*ReadAll(dir.Write("empty", ""), DocumentForm::kLines) == "");
}

TEST_CASE("C2.1 good JSON lines are read, blank ones are nothing") {
  const TempDir dir;
  const std::string path = dir.Write(
      "a.jsonl",
      "\xEF\xBB\xBF{\"text\":\"a\\u00e9\"}\r\n\n   \n{\"text\":\"\"}\n"
      "{\"id\":1,\"text\":\"b\"}");
  REQUIRE(*ReadAll(path, DocumentForm::kJsonLines) == "a\xC3\xA9|b");
}

TEST_CASE("C2.1 a bad record is named by file, physical line and reason") {
  struct Case {
    std::string line;
    const char* reason;
  };
  const std::vector<Case> cases = {
      {R"({"text":"secret"}{"text":"b"})", "not one JSON object"},
      {"[1]", "a JSON array, expected an object"},
      {R"({"txt":"secret"})", "missing key text"},
      {R"({"text": 5})", "text: not a string"},
      {R"({"text":"secret \ud800"})", "not one JSON object"},
      {"{\"text\":\"secret \xFF\"}", "invalid UTF-8 at byte 16"},
      {R"({"text":"secret \u0000"})", "text: NUL character"}};
  for (const Case& test : cases) {
    const TempDir dir;
    const std::string path =
        dir.Write("a.jsonl", "{\"text\":\"fine\"}\n\n" + test.line + "\n");
    const absl::Status status =
        ReadAll(path, DocumentForm::kJsonLines).status();
    REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
    const std::string message(status.message());
    REQUIRE_THAT(message, Catch::Contains(path + ":3: ") &&
                              Catch::Contains(test.reason));
    REQUIRE_THAT(message, !Catch::Contains("secret"));
  }
}

TEST_CASE("C2.1 a line of 50 MiB is read") {
  const TempDir dir;
  const std::string path =
      dir.Write("a.txt", "a\n" + std::string(50 << 20, 'x') + "\nb\n");
  REQUIRE(ReadAll(path, DocumentForm::kLines)->size() == (50 << 20) + 4);
}

TEST_CASE("documents are split, separated and counted") {
  const TempDir dir;
  TokenizeOptions options;
  options.in = dir.Write("a.txt", "ab\nc\nd\nef\ng\n");
  options.out = dir.File("out");
  options.form = DocumentForm::kLines;
  options.valid_every = 3;
  options.parts = 2;
  const auto manifest = Tokenize(kFs, WideTokenizer(300), options);
  REQUIRE(manifest.ok());
  const TokenFormat format = TokenFormat::kUint16;
  REQUIRE(Ids(dir.File("out/train-0.bin"), format) ==
          std::vector<int32_t>{'a', 'b', 299, 'e', 'f', 299});
  REQUIRE(Ids(dir.File("out/train-1.bin"), format) ==
          std::vector<int32_t>{'c', 299, 'g', 299});
  REQUIRE(Ids(dir.File("out/valid.bin"), format) ==
          std::vector<int32_t>{'d', 299});
  REQUIRE(manifest->vocab == 300);
  REQUIRE(manifest->eos_id == 299);
  const DatasetManifest::Shard* first = manifest->Find("train-0.bin");
  REQUIRE(first->tokens == 6);
  REQUIRE(first->documents == 2);
  REQUIRE(first->text_bytes == 4);
  REQUIRE(first->file_bytes == 12);
  REQUIRE(first->max_id == 299);
  const auto read = ReadManifest(kFs, dir.File("out/dataset.json"));
  REQUIRE(read.ok());
  REQUIRE(ManifestToJson(*read) == ManifestToJson(*manifest));
  const auto file = kFs->OpenForRead(dir.File("out/train-0.bin"));
  REQUIRE(BlockDigestOfFile(**file)->ToHex() == first->digest);
}

TEST_CASE("bytes documents end with a newline") {
  const TempDir dir;
  TokenizeOptions options;
  options.in = dir.Write("a.txt", "a\nb\n\nc\n");
  options.out = dir.File("out");
  const auto tokenizer = OpenTokenizer(kFs, kBytesTokenizer);
  const auto manifest = Tokenize(kFs, **tokenizer, options);
  REQUIRE(manifest.ok());
  REQUIRE(Ids(dir.File("out/train-0.bin"), TokenFormat::kUint16) ==
          std::vector<int32_t>{'a', '\n', 'b', '\n', 'c', '\n'});
  REQUIRE(manifest->shards[0].text_bytes == 6);
}

TEST_CASE("C1.3 the width follows the tokenizer's size, not the ids seen") {
  const TempDir dir;
  TokenizeOptions options;
  options.in = dir.Write("a.txt", "ab\n");
  options.out = dir.File("out");
  REQUIRE(Tokenize(kFs, WideTokenizer(65'536), options)->dtype ==
          TokenFormat::kUint16);
  const auto wide = Tokenize(kFs, WideTokenizer(70'000), options);
  REQUIRE(wide->dtype == TokenFormat::kUint32);
  REQUIRE(Ids(dir.File("out/train-0.bin"), TokenFormat::kUint32) ==
          std::vector<int32_t>{'a', 'b', 69'999});

  options.out = dir.File("forced");
  options.dtype = TokenFormat::kUint16;
  const absl::Status status =
      Tokenize(kFs, WideTokenizer(70'000), options).status();
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE_THAT(std::string(status.message()),
               Catch::Contains("70000") && Catch::Contains("65536"));
  REQUIRE_FALSE(kFs->Exists(options.out));
}

TEST_CASE("C1.3 after a bad record no shard remains") {
  const TempDir dir;
  TokenizeOptions options;
  options.in = dir.Write("a.jsonl", "{\"text\":\"a\"}\n{}\n");
  options.out = dir.File("out");
  options.form = DocumentForm::kJsonLines;
  REQUIRE_FALSE(Tokenize(kFs, WideTokenizer(300), options).ok());
  REQUIRE(kFs->List(options.out)->empty());
}

TEST_CASE("shards of the dataset before do not stay, other files do") {
  const TempDir dir;
  TokenizeOptions options;
  options.in = dir.Write("a.txt", "a\nb\nc\nd\n");
  options.out = dir.File("out");
  options.form = DocumentForm::kLines;
  options.parts = 2;
  options.valid_every = 4;
  REQUIRE(Tokenize(kFs, WideTokenizer(300), options).ok());
  REQUIRE(WriteFileAtomic(kFs, dir.File("out/train-9.bin"), "mine").ok());
  options.parts = 1;
  options.valid_every = 0;
  REQUIRE(Tokenize(kFs, WideTokenizer(300), options).ok());
  std::vector<std::string> names = *kFs->List(options.out);
  names.erase(std::remove(names.begin(), names.end(), "tokenizer.model"),
              names.end());
  REQUIRE(names == std::vector<std::string>{"dataset.json", "train-0.bin",
                                            "train-9.bin"});
}

TEST_CASE("C1.2 what the caller gave ends a tool with 2, a full disk with 75") {
  CHECK(ExitCodeOfTool(absl::OkStatus()) == kExitOk);
  CHECK(ExitCodeOfTool(absl::InvalidArgumentError("id 70000")) == kExitUsage);
  CHECK(ExitCodeOfTool(absl::NotFoundError("no shard")) == kExitUsage);
  CHECK(ExitCodeOfTool(absl::OutOfRangeError("short")) == kExitUsage);
  CHECK(ExitCodeOfTool(absl::ResourceExhaustedError("disk")) == kExitTemporary);
  CHECK(ExitCodeOfTool(absl::DataLossError("read failed")) == kExitFailed);
}

TEST_CASE("too few documents for the parts are refused") {
  const TempDir dir;
  TokenizeOptions options;
  options.in = dir.Write("a.txt", "a\nb\n");
  options.out = dir.File("out");
  options.form = DocumentForm::kLines;
  options.parts = 3;
  REQUIRE_THAT(
      std::string(
          Tokenize(kFs, WideTokenizer(300), options).status().message()),
      Catch::Contains("too few for 3 parts"));
  options.parts = 100000;  // More files than a process may open.
  REQUIRE_THAT(
      std::string(
          Tokenize(kFs, WideTokenizer(300), options).status().message()),
      Catch::Contains("1 to 500"));
}

TEST_CASE("a trained tokenizer gives every text back, newlines included") {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 300; ++i) {
    text += "and the " + std::to_string(i) + " words of the book were read\n";
    if (i % 7 == 0) text += "\n";
  }
  TrainTokenizerOptions options;
  options.in = dir.Write("a.txt", text);
  options.out = dir.File("t.model");
  options.vocab = 320;
  REQUIRE(TrainTokenizer(kFs, options).ok());
  const auto tokenizer = OpenTokenizer(kFs, options.out);
  REQUIRE(tokenizer.ok());
  REQUIRE((*tokenizer)->size() == 320);
  for (const std::string& sample :
       {std::string("and the words"), std::string(" and  two  spaces "),
        std::string("a\nb\n\nc"), std::string("\xF0\x9F\xA6\x99 caf\xC3\xA9"),
        std::string("This is a test"), std::string("a<s>b")}) {
    const auto ids = (*tokenizer)->Encode(sample);
    REQUIRE(ids.ok());
    REQUIRE(*(*tokenizer)->Decode(*ids) == sample);
  }
  // The same text, the same model.
  options.out = dir.File("again.model");
  REQUIRE(TrainTokenizer(kFs, options).ok());
  REQUIRE(*ReadFile(kFs, dir.File("t.model")) ==
          *ReadFile(kFs, dir.File("again.model")));

  options.vocab = 1'000'000;
  const absl::Status status = TrainTokenizer(kFs, options);
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE_THAT(std::string(status.message()),
               Catch::Contains(options.in) && Catch::Contains("1000000"));
}

TEST_CASE("a text that makes no tokenizer is refused with what to do") {
  const TempDir dir;
  TrainTokenizerOptions options;
  options.out = dir.File("t.model");
  std::vector<std::string> words;
  SECTION("empty") {
    options.in = dir.Write("a.txt", "");
    words = {"no text"};
  }
  SECTION("blank lines") {
    options.in = dir.Write("a.txt", "\n\n\n");
    words = {"no text"};
  }
  SECTION("little") {
    options.in = dir.Write("a.txt", "hi\n");
    words = {"2 bytes", "too little text", "--vocab 2048", "--vocab 263"};
  }
  SECTION("few pieces") {
    options.in = dir.Write("a.txt", "many words of some text\n");
    options.vocab = 100;
    words = {"--vocab 100 is too small", "at least"};
  }
  const absl::Status status = TrainTokenizer(kFs, options);
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  for (const std::string& word : words) {
    REQUIRE_THAT(std::string(status.message()), Catch::Contains(word));
  }
  REQUIRE_FALSE(absl::StrContains(status.message(), ".cc("));
  REQUIRE_THAT(std::string(status.message()), Catch::Contains(options.in));
  REQUIRE_FALSE(kFs->Exists(options.out));
}

}  // namespace
}  // namespace diloco

// Implements train_tokenizer.h.
#include "worker/tools/train_tokenizer.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "worker/data/sentencepiece_engine.h"
#include "worker/data/tokenizer.h"
#include "worker/tools/documents.h"
#include "worker/tools/flags.h"

namespace diloco {
namespace {

// SentencePiece drops longer sentences; lines are cut before.
constexpr size_t kSentenceBytes = 4096;

// Of the ids that a shard can hold and a model may have.
constexpr uint64_t kMaxVocab = 1 << 24;

// Yields the text's lines in pieces that SentencePiece accepts, and remembers
// what went wrong while reading.
class SentenceSource {
 public:
  SentenceSource(DocumentReader reader, std::string path)
      : reader_(std::move(reader)), path_(std::move(path)) {}

  bool Next(std::string* sentence) {
    while (at_ >= text_.size()) {
      absl::StatusOr<bool> more = reader_.Next(&text_);
      if (more.ok() && *more) more = CheckText();
      if (!more.ok()) status_ = more.status();
      if (!more.ok() || !*more) return false;
      at_ = 0;
    }
    size_t end = std::min(text_.find('\n', at_), text_.size());
    bool cut = false;
    if (end - at_ > kSentenceBytes) {
      const size_t space = text_.rfind(' ', at_ + kSentenceBytes);
      end = space != std::string::npos && space > at_ ? space
                                                      : at_ + kSentenceBytes;
      // Not inside a character.
      while ((text_[end] & 0xC0) == 0x80) --end;
      cut = true;
    }
    sentence->assign(text_, at_, end - at_);
    bytes_ += end - at_;
    at_ = cut ? end : end + 1;
    return true;
  }
  const absl::Status& status() const { return status_; }
  // Given so far, without line ends.
  uint64_t bytes() const { return bytes_; }

 private:
  absl::StatusOr<bool> CheckText() {
    if (const std::optional<size_t> bad = FindInvalidUtf8(text_)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, ":", reader_.line(), ": invalid UTF-8 at byte ",
                       *bad, " of the document that ends here"));
    }
    return true;
  }

  DocumentReader reader_;
  const std::string path_;
  std::string text_;
  size_t at_ = 0;
  uint64_t bytes_ = 0;
  absl::Status status_;
};

// SentencePiece's complaints that come from the text, in words of ours.
absl::Status Explain(const TrainTokenizerOptions& options, uint64_t bytes,
                     const std::string& error) {
  if (bytes == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.in, ": there is no text in it; name a file with text"));
  }
  unsigned long most = 0;
  unsigned long asked = 0;
  unsigned long fewest = 0;
  const size_t high = error.find("Vocabulary size too high");
  const size_t small = error.find("smaller than required_chars. ");
  if (high != std::string::npos) {
    const size_t at = error.find("<= ", high);
    if (at != std::string::npos) {
      std::sscanf(error.c_str() + at, "<= %lu", &most);
    }
    return absl::InvalidArgumentError(absl::StrCat(
        options.in, ": its ", bytes, " bytes are too little text for --vocab ",
        options.vocab, "; take more text, or --vocab ", most, " at most"));
  }
  if (small != std::string::npos &&
      std::sscanf(error.c_str() + small,
                  "smaller than required_chars. %lu vs %lu", &asked,
                  &fewest) == 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.in, ": --vocab ", options.vocab,
        " is too small: its characters, the 256 bytes and the special pieces "
        "alone are ",
        fewest, "; take --vocab ", fewest, " at least"));
  }
  return absl::InternalError(
      absl::StrCat(options.in, ": SentencePiece cannot make ", options.vocab,
                   " pieces of it: ", error));
}

}  // namespace

absl::Status TrainTokenizer(FileSystem* fs,
                            const TrainTokenizerOptions& options) {
  ASSIGN_OR_RETURN(
      DocumentReader reader,
      DocumentReader::Open(fs, options.in, FormOf(options.in, false)));
  SentenceSource source(std::move(reader), options.in);
  std::string model;
  const std::string error = TrainSentencePiece(
      {{"model_type", "bpe"},
       {"vocab_size", absl::StrCat(options.vocab)},
       {"normalization_rule_name", "identity"},
       {"remove_extra_whitespaces", "false"},
       {"add_dummy_prefix", options.dummy_prefix ? "true" : "false"},
       {"user_defined_symbols", "\n"},
       {"byte_fallback", "true"},
       {"character_coverage", "1.0"},
       {"num_threads", "1"},
       // Errors are returned, and said by us.
       {"minloglevel", "2"}},
      [&](std::string* sentence) { return source.Next(sentence); }, &model);
  RETURN_IF_ERROR(source.status());
  if (!error.empty()) return Explain(options, source.bytes(), error);
  return WriteFileAtomic(fs, options.out, model);
}

int RunTrainTokenizer(int argc, char** argv) {
  TrainTokenizerOptions options;
  Flags flags("train-tokenizer", "Trains a SentencePiece BPE model on text.");
  flags.Text("in", &options.in,
             "text file, or JSON lines with a key text (.jsonl)");
  flags.Text("out", &options.out, "model file to write, e.g. tokenizer.model");
  flags.Count("vocab", &options.vocab, "pieces", 1, kMaxVocab);
  flags.Switch("dummy-prefix", &options.dummy_prefix,
               "put a space in front of every text, as Llama 2 does");
  flags.Require("in");
  flags.Require("out");
  if (const auto code = flags.Parse(argc, argv)) return *code;
  absl::FPrintF(stderr, "train-tokenizer: %d pieces of %s\n", options.vocab,
                options.in);
  const Instant begin = Clock::Real()->Now();
  const absl::Status status = TrainTokenizer(FileSystem::Posix(), options);
  if (!status.ok()) {
    absl::FPrintF(stderr, "train-tokenizer: %s\n", status.message());
    return ExitCodeOfTool(status);
  }
  absl::PrintF("%s: %d pieces, %.1f s\n", options.out, options.vocab,
               absl::ToDoubleSeconds(Clock::Real()->Now() - begin));
  return kExitOk;
}

}  // namespace diloco

// Implements tokenize.h.
#include "worker/tools/tokenize.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/io/digest.h"
#include "worker/tools/flags.h"
#include "worker/tools/shard_writer.h"

namespace diloco {
namespace {

constexpr uint64_t kMaxParts = 500;

constexpr int32_t kUint16Ids = 65536;
constexpr char kTokenizerCopy[] = "tokenizer.model";

absl::StatusOr<TokenFormat> ChooseFormat(const Tokenizer& tokenizer,
                                         std::optional<TokenFormat> asked) {
  const bool fits = tokenizer.size() <= kUint16Ids;
  if (!asked.has_value()) {
    return fits ? TokenFormat::kUint16 : TokenFormat::kUint32;
  }
  if (*asked == TokenFormat::kLlmC) {
    return absl::InvalidArgumentError("dtype llm.c is for reading only");
  }
  if (*asked == TokenFormat::kUint16 && !fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tokenizer has ", tokenizer.size(),
                     " ids, uint16 holds ", kUint16Ids, "; use uint32"));
  }
  return *asked;
}

class Job {
 public:
  Job(FileSystem* fs, const Tokenizer& tokenizer,
      const TokenizeOptions& options)
      : fs_(fs), tokenizer_(tokenizer), options_(options) {}

  absl::StatusOr<DatasetManifest> Run() {
    // Each is an open file.
    if (options_.parts < 1 || options_.parts > kMaxParts) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parts must be 1 to ", kMaxParts, ", not ", options_.parts));
    }
    ASSIGN_OR_RETURN(manifest_.dtype, ChooseFormat(tokenizer_, options_.dtype));
    manifest_.vocab = static_cast<uint64_t>(tokenizer_.size());
    manifest_.eos_id = tokenizer_.eos_id().value_or(-1);
    ASSIGN_OR_RETURN(DocumentReader reader,
                     DocumentReader::Open(fs_, options_.in, options_.form));
    RETURN_IF_ERROR(fs_->CreateDirs(options_.out));
    RETURN_IF_ERROR(OpenShards());
    RETURN_IF_ERROR(EncodeAll(reader));
    RETURN_IF_ERROR(Finish());
    return std::move(manifest_);
  }

 private:
  absl::Status OpenShards() {
    for (uint64_t part = 0; part < options_.parts; ++part) {
      RETURN_IF_ERROR(OpenShard(absl::StrCat("train-", part, ".bin"), "train"));
    }
    if (options_.valid_every > 0) {
      RETURN_IF_ERROR(OpenShard("valid.bin", "valid"));
    }
    return absl::OkStatus();
  }

  absl::Status OpenShard(std::string file, std::string split) {
    DatasetManifest::Shard entry;
    entry.file = std::move(file);
    entry.split = std::move(split);
    const int width = manifest_.dtype == TokenFormat::kUint32 ? 4 : 2;
    ASSIGN_OR_RETURN(
        std::unique_ptr<ShardWriter> shard,
        ShardWriter::Create(fs_, options_.out, std::move(entry), width));
    shards_.push_back(std::move(shard));
    return absl::OkStatus();
  }

  absl::Status EncodeAll(DocumentReader& reader) {
    const bool bytes = options_.tokenizer_file == kBytesTokenizer;
    std::string text;
    uint64_t documents = 0;
    uint64_t training = 0;
    while (true) {
      ASSIGN_OR_RETURN(const bool more, reader.Next(&text));
      if (!more) break;
      ++documents;
      const std::optional<size_t> bad =
          bytes ? std::nullopt : FindInvalidUtf8(text);
      if (bad.has_value()) {
        return absl::InvalidArgumentError(absl::StrCat(
            options_.in, ":", reader.line(), ": invalid UTF-8 at byte ", *bad,
            " of the document that ends here"));
      }
      if (!tokenizer_.eos_id().has_value()) text.push_back('\n');
      ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer_.Encode(text));
      if (tokenizer_.eos_id().has_value()) ids.push_back(*tokenizer_.eos_id());
      const bool valid =
          options_.valid_every > 0 && documents % options_.valid_every == 0;
      ShardWriter& shard =
          valid ? *shards_.back() : *shards_[training++ % options_.parts];
      RETURN_IF_ERROR(shard.Append(ids, text.size()));
    }
    if (training >= options_.parts) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        options_.in, ": ", documents, " documents, of which ", training,
        " for training, are too few for ", options_.parts, " parts"));
  }

  absl::Status Finish() {
    for (const auto& shard : shards_) {
      ASSIGN_OR_RETURN(DatasetManifest::Shard entry, shard->Finish());
      manifest_.shards.push_back(std::move(entry));
    }
    manifest_.tokenizer = kBytesTokenizer;
    if (options_.tokenizer_file != kBytesTokenizer) {
      ASSIGN_OR_RETURN(const std::string model,
                       ReadFile(fs_, options_.tokenizer_file));
      manifest_.tokenizer = kTokenizerCopy;
      manifest_.tokenizer_digest = BlockDigest(model).ToHex();
      RETURN_IF_ERROR(
          WriteFileAtomic(fs_, JoinPath(options_.out, kTokenizerCopy), model));
    }
    // While shards are replaced no manifest must claim to describe them.
    const std::string path = JoinPath(options_.out, kManifestName);
    std::vector<std::string> before;
    if (fs_->Exists(path)) {
      ASSIGN_OR_RETURN(before, FilesOf(path));
      RETURN_IF_ERROR(fs_->Remove(path));
    }
    for (const auto& shard : shards_) RETURN_IF_ERROR(shard->Publish());
    // A shard of the dataset before would be taken for one of this.
    for (const std::string& file : before) {
      if (Has(file)) continue;
      const std::string stale = JoinPath(options_.out, file);
      if (fs_->Exists(stale)) RETURN_IF_ERROR(fs_->Remove(stale));
    }
    return WriteFileAtomic(fs_, path, ManifestToJson(manifest_));
  }

  // Of the dataset that is there.
  absl::StatusOr<std::vector<std::string>> FilesOf(const std::string& path) {
    const absl::StatusOr<DatasetManifest> manifest = ReadManifest(fs_, path);
    if (!manifest.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(options_.out, " holds another ", kManifestName,
                       " that cannot be read (", manifest.status().message(),
                       "): name another directory, or remove it"));
    }
    std::vector<std::string> files;
    for (const DatasetManifest::Shard& shard : manifest->shards) {
      if (IsFileHere(shard.file)) files.push_back(shard.file);
    }
    if (IsFileHere(manifest->tokenizer)) files.push_back(manifest->tokenizer);
    return files;
  }

  static bool IsFileHere(const std::string& name) {
    return name != kBytesTokenizer && name.find('/') == std::string::npos;
  }

  bool Has(const std::string& file) const {
    return file == manifest_.tokenizer ||
           std::any_of(manifest_.shards.begin(), manifest_.shards.end(),
                       [&](const DatasetManifest::Shard& shard) {
                         return shard.file == file;
                       });
  }

  FileSystem* const fs_;
  const Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  DatasetManifest manifest_;
  std::vector<std::unique_ptr<ShardWriter>> shards_;
};

}  // namespace

absl::StatusOr<DatasetManifest> Tokenize(FileSystem* fs,
                                         const Tokenizer& tokenizer,
                                         const TokenizeOptions& options) {
  return Job(fs, tokenizer, options).Run();
}

int RunTokenize(int argc, char** argv) {
  TokenizeOptions options;
  std::string dtype = "auto";
  bool document_per_line = false;
  Flags flags("tokenize", "Turns text into shards of token ids.");
  flags.Text("in", &options.in,
             "text file, or JSON lines with a key text (.jsonl)");
  flags.Text("out", &options.out, "directory for the shards and dataset.json");
  flags.Text("tokenizer", &options.tokenizer_file,
             "SentencePiece model, or bytes");
  flags.Text("dtype", &dtype, "uint16, uint32, or auto by tokenizer size");
  flags.Switch("document-per-line", &document_per_line,
               "a line is a document; otherwise blank lines separate them");
  flags.Count("valid-every", &options.valid_every,
              "every n-th document goes to valid.bin; 0: none");
  flags.Count("parts", &options.parts, "disjoint training shards");
  flags.Require("in");
  flags.Require("out");
  if (const auto code = flags.Parse(argc, argv)) return *code;
  options.form = FormOf(options.in, document_per_line);
  if (dtype != "auto") {
    const absl::StatusOr<TokenFormat> format = ParseTokenFormat(dtype);
    if (!format.ok()) {
      absl::FPrintF(stderr, "tokenize: --dtype: %s\n",
                    format.status().message());
      return kExitUsage;
    }
    options.dtype = *format;
  }
  FileSystem* fs = FileSystem::Posix();
  const auto tokenizer = OpenTokenizer(fs, options.tokenizer_file);
  absl::StatusOr<DatasetManifest> manifest =
      tokenizer.ok() ? Tokenize(fs, **tokenizer, options)
                     : absl::StatusOr<DatasetManifest>(tokenizer.status());
  if (!manifest.ok()) {
    absl::FPrintF(stderr, "tokenize: %s\n", manifest.status().message());
    return ExitCodeOfTool(manifest.status());
  }
  absl::PrintF("%-14s %-6s %12s %10s %12s %7s\n", "shard", "split", "tokens",
               "documents", "text bytes", "max id");
  for (const DatasetManifest::Shard& shard : manifest->shards) {
    absl::PrintF("%-14s %-6s %12d %10d %12d %7d\n", shard.file, shard.split,
                 shard.tokens, shard.documents, shard.text_bytes, shard.max_id);
  }
  return kExitOk;
}

}  // namespace diloco

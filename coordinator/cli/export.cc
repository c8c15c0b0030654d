// `dilococtl export`: the newest version as a Hugging Face directory. Fetches
// the files that lead to it, checks every digest, and writes the directory
// under its name only when it is complete.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/io/file_system.h"
#include "common/io/remove_tree.h"
#include "common/model/hf_directory.h"
#include "common/rpc/blob_download.h"
#include "common/rpc/channel.h"
#include "common/rpc/message_codec.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/export_model.h"
#include "coordinator/cli/format.h"
#include "coordinator/cli/message_json.h"
#include "nlohmann/json.hpp"

namespace diloco {
namespace {

// In a row, at most 5 s apart, before an unreachable coordinator is given up.
constexpr int kMaxRetries = 12;
// A version's files may be superseded while they are fetched.
constexpr int kMaxResolutions = 3;

// Files on their way, in a directory that goes away with this object.
class Fetcher {
 public:
  Fetcher(const std::string& coordinator, std::string dir)
      : fs_(FileSystem::Posix()),
        dir_(std::move(dir)),
        connections_(coordinator) {
    options_.peer = coordinator;
    // Drawn before each retry: the place to count them.
    options_.draw = [this] {
      if (++retries_ >= kMaxRetries) cancel_ = true;
      return 1.0;
    };
  }

  ~Fetcher() { RemoveTree(fs_, dir_); }

  // The path of the file once it is here and verified.
  absl::StatusOr<std::string> Fetch(const std::string& name,
                                    const Digest& digest, uint64_t bytes) {
    RETURN_IF_ERROR(fs_->CreateDirs(dir_));
    const std::string path = JoinPath(dir_, name);
    retries_ = 0;
    const absl::Status status =
        DownloadBlob(&connections_, options_, "", digest, bytes, path, cancel_);
    if (cancel_) {
      return absl::UnavailableError(
          absl::StrCat("coordinator ", options_.peer,
                       " stays unreachable while files are fetched"));
    }
    RETURN_IF_ERROR(status);
    return path;
  }

 private:
  FileSystem* const fs_;
  const std::string dir_;
  BlobConnections connections_;
  BlobClientOptions options_;
  int retries_ = 0;
  TransferCancel cancel_{false};
};

absl::StatusOr<std::vector<std::string>> FetchTokenizer(
    const v1::ExportDescription& description, Fetcher* fetcher) {
  std::vector<std::string> paths;
  for (const v1::NamedFile& file : description.tokenizer()) {
    // Names come from the network and become file names here.
    if (!IsPlainFileName(file.name())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the coordinator names a tokenizer file '",
          absl::CHexEscape(file.name()), "', which is not a plain file name"));
    }
    ASSIGN_OR_RETURN(const Digest digest,
                     DecodeDigest(file.name(), file.file().digest()));
    ASSIGN_OR_RETURN(std::string path,
                     fetcher->Fetch(file.name(), digest, file.file().bytes()));
    paths.push_back(std::move(path));
  }
  return paths;
}

std::string ModelCard(const v1::ExportDescription& description) {
  std::string card = absl::StrFormat(
      "---\nlibrary_name: transformers\npipeline_tag: text-generation\n---\n"
      "# %s\n\nTrained by DiLoCo: version %d of run %s, %d tokens.\n",
      description.run(), description.version(), description.run(),
      description.folded_tokens());
  if (description.fragments_size() > 1) {
    std::vector<uint64_t> versions;
    for (const v1::FragmentFiles& fragment : description.fragments()) {
      versions.push_back(fragment.version());
    }
    absl::StrAppend(&card, "Versions of its fragments: ",
                    absl::StrJoin(versions, ", "), ".\n");
  }
  if (description.has_eval() && description.eval().tokens() > 0) {
    absl::StrAppend(
        &card, absl::StrFormat("Evaluation loss %.4f nats per token at version "
                               "%d.\n",
                               description.eval().loss(),
                               description.eval().version()));
  }
  return card;
}

absl::Status WriteModel(const v1::ExportDescription& description,
                        const std::string& out, Fetcher* fetcher) {
  FileSystem* const fs = FileSystem::Posix();
  ASSIGN_OR_RETURN(
      const ExportedModel model,
      BuildModel(
          description,
          [&](const Digest& digest,
              uint64_t bytes) -> absl::StatusOr<std::unique_ptr<ReadableFile>> {
            ASSIGN_OR_RETURN(const std::string path,
                             fetcher->Fetch(digest.ToHex(), digest, bytes));
            return fs->OpenForRead(path);
          }));
  HfExport contents;
  contents.config = model.config;
  contents.layout = &model.layout;
  contents.theta = model.theta;
  ASSIGN_OR_RETURN(contents.tokenizer_files,
                   FetchTokenizer(description, fetcher));
  contents.model_card = ModelCard(description);
  return WriteHfDirectory(fs, out, contents);
}

absl::Status RunExport(const Invocation& invocation) {
  std::string out = invocation.Get("out");
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  if (out.empty()) {
    return absl::InvalidArgumentError(
        "export needs --out DIR, a directory that does not exist yet");
  }
  if (FileSystem::Posix()->Exists(out)) {
    return absl::AlreadyExistsError(absl::StrCat(
        out, " exists; export writes a new directory, give another name"));
  }
  AdminClient client(invocation.coordinator);
  FileSystem* const fs = FileSystem::Posix();
  // Under a name of its own: writing the model clears what is left beside it.
  const std::string fetched = absl::StrCat(out, ".fetched");
  RemoveLeftBeside(fs, fetched);
  v1::ExportDescription description;
  absl::Status written = absl::UnknownError("no attempt");
  for (int i = 0; i < kMaxResolutions && !written.ok(); ++i) {
    ASSIGN_OR_RETURN(description, client.DescribeExport());
    Fetcher fetcher(invocation.coordinator, NewNameBeside(fs, fetched));
    written = WriteModel(description, out, &fetcher);
    if (!absl::IsNotFound(written)) break;
  }
  RETURN_IF_ERROR(WithContext(written, absl::StrCat("export to ", out)));
  if (invocation.json) {
    nlohmann::ordered_json json;
    json["out"] = out;
    json["run"] = description.run();
    json["version"] = description.version();
    json["versions"] = nlohmann::ordered_json::array();
    for (const v1::FragmentFiles& fragment : description.fragments()) {
      json["versions"].push_back(fragment.version());
    }
    json["folded_tokens"] = description.folded_tokens();
    std::printf("%s\n", JsonLine(json).c_str());
    return absl::OkStatus();
  }
  std::printf("%s: version %lu of run %s, %s tokens\n", out.c_str(),
              static_cast<unsigned long>(description.version()),
              description.run().c_str(),
              FormatCount(description.folded_tokens()).c_str());
  return absl::OkStatus();
}

}  // namespace

CommandSpec ExportCommand() {
  CommandSpec command;
  command.name = "export";
  command.summary = "write the newest version as a Hugging Face directory";
  command.flags = {{"out", "DIR", "where to; must not exist yet (required)"}};
  command.details =
      "The directory has config.json, generation_config.json,\n"
      "model.safetensors (fp32) and the run's tokenizer files; transformers "
      "and\n"
      "diloco-worker sample open it. Works in mid-run, too.\n";
  command.example = "  dilococtl export --out model\n";
  command.run = RunExport;
  return command;
}

}  // namespace diloco

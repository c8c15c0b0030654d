// `dilococtl refold`: what theta would have been without a worker's update.
#include <cmath>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/model/fragments.h"
#include "common/model/hf_directory.h"
#include "common/tensor/layout.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/message_json.h"
#include "coordinator/cli/run_file.h"
#include "coordinator/config.h"
#include "coordinator/offline/replay.h"
#include "coordinator/offline/run_archive.h"

namespace diloco {
namespace {

struct Refolded {
  uint64_t version = 0;
  std::vector<float> theta;
  double change = 0;  // L2 distance from what was published.
};

absl::StatusOr<const RoundRecord*> FindRound(const RunArchive& archive,
                                             uint32_t fragment,
                                             uint64_t number) {
  for (const RoundRecord& round : archive.rounds()) {
    if (round.opened.round != number || round.opened.fragment != fragment) {
      continue;
    }
    if (round.published.has_value()) return &round;
    return absl::FailedPreconditionError(
        absl::StrCat("round ", number, " was not folded"));
  }
  return absl::NotFoundError(absl::StrCat("there is no round ", number,
                                          " of fragment ", fragment,
                                          "; dilococtl history lists them"));
}

absl::StatusOr<Refolded> RefoldRound(RunArchive& archive, uint32_t fragment,
                                     uint64_t number,
                                     const std::set<std::string>& without) {
  ASSIGN_OR_RETURN(const RoundRecord* const round,
                   FindRound(archive, fragment, number));
  ASSIGN_OR_RETURN(const std::vector<uint64_t> versions,
                   archive.VersionsWith(fragment, round->published->version));
  for (const std::string& worker : without) {
    bool member = false;
    for (const RoundMember& other : round->closed->members) {
      member = member || other.worker == worker;
    }
    if (!member) {
      return absl::InvalidArgumentError(
          absl::StrCat(worker, " has no update in round ", number));
    }
  }
  Refolded result;
  for (uint32_t f = 0; f < versions.size(); ++f) {
    ASSIGN_OR_RETURN(
        FragmentValues values,
        ValuesAt(archive, f, f == fragment ? versions[f] - 1 : versions[f]));
    if (f == fragment) {
      FragmentValues published = values;
      RETURN_IF_ERROR(FoldRound(archive, *round, without, &values).status());
      ASSIGN_OR_RETURN(const FoldResult as_published,
                       FoldRound(archive, *round, {}, &published));
      RETURN_IF_ERROR(CheckReproduced(*round->published, as_published));
      for (size_t i = 0; i < values.theta.size(); ++i) {
        const double d = values.theta[i] - published.theta[i];
        result.change += d * d;
      }
    }
    result.version += values.version;
    result.theta.insert(result.theta.end(), values.theta.begin(),
                        values.theta.end());
  }
  result.change = std::sqrt(result.change);
  return result;
}

absl::Status RunRefold(const Invocation& invocation) {
  const std::string out = invocation.Get("out");
  if (!invocation.Has("round") || !invocation.Has("without") ||
      !invocation.Has("config") || out.empty()) {
    return absl::InvalidArgumentError(
        "refold needs --config FILE, --round R, --without WORKER and --out "
        "DIR");
  }
  ASSIGN_OR_RETURN(const uint64_t number,
                   ParseCount("round", invocation.Get("round")));
  uint64_t fragment_number = 0;
  if (invocation.Has("fragment")) {
    ASSIGN_OR_RETURN(fragment_number,
                     ParseCount("fragment", invocation.Get("fragment")));
  }
  const auto fragment = static_cast<uint32_t>(fragment_number);
  ASSIGN_OR_RETURN(const LoadedRun loaded,
                   LoadRunFile(invocation.Get("config")));
  const RunConfig& config = loaded.config;
  FileSystem* const fs = FileSystem::Posix();
  ASSIGN_OR_RETURN(const Layout layout,
                   ModelLayout(config.model, config.sync.fragments));
  ASSIGN_OR_RETURN(const std::unique_ptr<RunArchive> archive,
                   RunArchive::Read(fs, config.state.dir));
  const std::set<std::string> without =
      absl::StrSplit(invocation.Get("without"), ',');
  ASSIGN_OR_RETURN(const Refolded refolded,
                   RefoldRound(*archive, fragment, number, without));
  HfExport contents;
  contents.config = config.model;
  contents.layout = &layout;
  contents.theta = refolded.theta;
  for (const ContentFile& file : config.data.tokenizer_files) {
    contents.tokenizer_files.push_back(file.path);
  }
  contents.model_card = absl::StrFormat(
      "# %s\n\nTheta as version %d of run %s would have been without %s in "
      "round %d.\n",
      config.run, refolded.version, config.run, invocation.Get("without"),
      number);
  RETURN_IF_ERROR(WriteHfDirectory(fs, out, contents));
  if (invocation.json) {
    nlohmann::ordered_json json;
    json["out"] = out;
    json["version"] = refolded.version;
    json["distance"] = refolded.change;
    std::printf("%s\n", JsonLine(json).c_str());
    return absl::OkStatus();
  }
  std::printf(
      "%s: version %lu without %s, at a distance of %.4g from what was "
      "published\n",
      out.c_str(), static_cast<unsigned long>(refolded.version),
      invocation.Get("without").c_str(), refolded.change);
  return absl::OkStatus();
}

}  // namespace

CommandSpec RefoldCommand() {
  CommandSpec command;
  command.name = "refold";
  command.summary = "theta as it would have been without a worker's update";
  command.flags = {
      {"config", "FILE", "the run file: names the state directory (required)"},
      {"round", "R", "the round to fold again (required)"},
      {"fragment", "F", "whose round; default: 0"},
      {"without", "WORKER[,...]", "whose updates to leave out (required)"},
      {"out", "DIR",
       "a Hugging Face directory; must not exist yet (required)"}};
  command.details =
      "Folds one round again from the updates that are still kept, and writes\n"
      "the model that its version would have been. Changes nothing in the "
      "run:\n"
      "to go on from before the round, roll back and evict the worker.\n";
  command.example =
      "  dilococtl refold --config run.yaml --round 12 --without w3 --out "
      "m12\n";
  command.run = RunRefold;
  return command;
}

}  // namespace diloco

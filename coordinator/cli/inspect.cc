// `dilococtl inspect`: what a state directory holds, without a coordinator.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/event_text.h"
#include "coordinator/cli/format.h"
#include "coordinator/cli/message_json.h"
#include "coordinator/offline/run_archive.h"
#include "coordinator/store/fact_codec.h"
#include "coordinator/store/state_dir.h"

namespace diloco {
namespace {

// What is there of one kind of file.
struct Kept {
  std::vector<uint64_t> versions;
  uint64_t bytes = 0;
};

struct KeptFiles {
  Kept images, blobs;
  uint64_t updates = 0;
  uint64_t update_bytes = 0;
};

KeptFiles FilesThere(RunArchive& archive) {
  KeptFiles kept;
  const auto count = [&archive](const FileRef& file, uint64_t version,
                                Kept& kind) {
    if (file.bytes == 0 || !archive.versions().Find(file.digest).has_value()) {
      return;
    }
    if (kind.versions.empty() || kind.versions.back() != version) {
      kind.versions.push_back(version);
    }
    kind.bytes += file.bytes;
  };
  for (uint32_t f = 0; f < archive.state().fragments.size(); ++f) {
    for (uint64_t v = 0; v <= archive.state().fragments[f].version; ++v) {
      const RunArchive::Files files = archive.FilesOf(f, v);
      count(files.theta_image, v, kept.images);
      count(files.momentum_image, v, kept.images);
      count(files.blob, v, kept.blobs);
    }
  }
  for (const RoundRecord& round : archive.rounds()) {
    for (const auto& [worker, update] : round.updates) {
      if (!archive.fs()->Exists(archive.spools().CompletePath(
              update.fragment, update.round, worker, update.value.digest))) {
        continue;
      }
      ++kept.updates;
      kept.update_bytes += update.value.bytes;
    }
  }
  return kept;
}

std::string RoundState(const FragmentState& fragment) {
  if (fragment.folding.has_value()) {
    return absl::StrCat("round ", fragment.folding->round, " folding");
  }
  if (!fragment.open.has_value()) return "no round open";
  return absl::StrCat("round ", fragment.open->round, " open, ",
                      fragment.open->committed.size(), " of ",
                      fragment.open->leases.size(), " updates in");
}

// "0, 8, 16 to 24 (42.2 MB)"
std::string VersionList(const Kept& kept) {
  if (kept.versions.empty()) return "none";
  std::vector<std::string> runs;
  for (size_t first = 0, last = 0; first < kept.versions.size();
       first = last = last + 1) {
    while (last + 1 < kept.versions.size() &&
           kept.versions[last + 1] == kept.versions[last] + 1) {
      ++last;
    }
    runs.push_back(last == first ? absl::StrCat(kept.versions[first])
                                 : absl::StrCat(kept.versions[first], " to ",
                                                kept.versions[last]));
  }
  return absl::StrCat("of versions ", absl::StrJoin(runs, ", "), " (",
                      FormatBytes(static_cast<double>(kept.bytes)), ")");
}

std::string RunState(const State& state) {
  if (state.finished) return absl::StrCat("finished: ", state.finish_reason);
  if (state.paused) return absl::StrCat("paused: ", state.pause_reason);
  return state.started ? "running" : "waiting for workers";
}

void PrintText(RunArchive& archive) {
  const State& state = archive.state();
  const KeptFiles kept = FilesThere(archive);
  std::string text = absl::StrCat(
      "run ", state.run, ": ", RunState(state), "\n  lineage   ",
      ToHex(state.lineage), ", epoch ", state.epoch, "\n  settings  ",
      state.settings_digest.Short(), "\n  journal   ",
      archive.journal().records, " records, ",
      FormatBytes(static_cast<double>(archive.journal().good_bytes)), " in ",
      archive.journal().segments.size(),
      archive.journal().segments.size() == 1 ? " segment" : " segments");
  if (archive.journal().tail_bytes > 0) {
    absl::StrAppend(&text, ", then a torn tail of ",
                    archive.journal().tail_bytes, " bytes");
  }
  for (size_t f = 0; f < state.fragments.size(); ++f) {
    const FragmentState& fragment = state.fragments[f];
    absl::StrAppend(
        &text, "\n  ",
        state.fragments.size() < 2 ? "" : absl::StrCat("fragment ", f, ": "),
        "version   ", fragment.version, ", digest ", fragment.digest.Short(),
        "; ", RoundState(fragment));
  }
  absl::StrAppend(&text, "\n  tokens    ", FormatCount(state.folded_tokens),
                  " folded\n  images    ", VersionList(kept.images),
                  "\n  blobs     ", VersionList(kept.blobs), "\n  updates   ",
                  kept.updates, " (",
                  FormatBytes(static_cast<double>(kept.update_bytes)), ")\n");
  for (const auto& [name, worker] : state.workers) {
    absl::StrAppend(
        &text, absl::StrFormat("  worker    %-14s %-8s %d rounds, %s tokens "
                               "folded\n",
                               name, MembershipName(worker.membership),
                               worker.rounds_folded,
                               FormatCount(worker.tokens_folded)));
  }
  std::fputs(text.c_str(), stdout);
}

nlohmann::ordered_json KeptJson(const Kept& kept) {
  nlohmann::ordered_json json;
  json["versions"] = kept.versions;
  json["bytes"] = kept.bytes;
  return json;
}

void PrintJson(RunArchive& archive) {
  const State& state = archive.state();
  const KeptFiles kept = FilesThere(archive);
  nlohmann::ordered_json json;
  json["run"] = state.run;
  json["lineage"] = ToHex(state.lineage);
  json["epoch"] = state.epoch;
  json["settings_digest"] = state.settings_digest.ToHex();
  json["finished"] = state.finished;
  json["paused"] = state.paused;
  json["folded_tokens"] = state.folded_tokens;
  json["journal"] = {{"records", archive.journal().records},
                     {"segments", archive.journal().segments.size()},
                     {"bytes", archive.journal().good_bytes},
                     {"tail_bytes", archive.journal().tail_bytes}};
  json["fragments"] = nlohmann::ordered_json::array();
  for (const FragmentState& fragment : state.fragments) {
    json["fragments"].push_back({{"version", fragment.version},
                                 {"digest", fragment.digest.ToHex()},
                                 {"last_round", fragment.last_round},
                                 {"state", RoundState(fragment)}});
  }
  json["images"] = KeptJson(kept.images);
  json["blobs"] = KeptJson(kept.blobs);
  json["updates"] = {{"count", kept.updates}, {"bytes", kept.update_bytes}};
  json["workers"] = nlohmann::ordered_json::array();
  for (const auto& [name, worker] : state.workers) {
    json["workers"].push_back(
        {{"name", name},
         {"membership", MembershipName(worker.membership)},
         {"rounds_folded", worker.rounds_folded},
         {"tokens_folded", worker.tokens_folded}});
  }
  std::printf("%s\n", JsonLine(json).c_str());
}

absl::Status PrintRecord(const Journal::Record& record, bool as_json) {
  v1::Record message;
  if (!message.ParseFromArray(record.payload.data(),
                              static_cast<int>(record.payload.size()))) {
    return absl::DataLossError("the payload is no record");
  }
  if (as_json) {
    nlohmann::ordered_json json;
    json["sequence"] = record.sequence;
    json["segment"] = record.segment;
    json["offset"] = record.offset;
    json["record"] = MessageToJson(message);
    std::printf("%s\n", JsonLine(json).c_str());
    return absl::OkStatus();
  }
  std::printf("%6lu  at %u:%-9lu %-18s %s\n",
              static_cast<unsigned long>(record.sequence), record.segment,
              static_cast<unsigned long>(record.offset),
              FactTypeName(record.type).c_str(), EventText(message).c_str());
  return absl::OkStatus();
}

absl::Status RunInspect(const Invocation& invocation) {
  FileSystem* const fs = FileSystem::Posix();
  const std::string& dir = invocation.positional[0];
  if (invocation.Has("records")) {
    return Journal::Scan(fs, dir,
                         [&](const Journal::Record& record) {
                           return PrintRecord(record, invocation.json);
                         })
        .status();
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<RunArchive> archive,
                   RunArchive::Read(fs, dir));
  if (invocation.json) {
    PrintJson(*archive);
  } else {
    PrintText(*archive);
  }
  return absl::OkStatus();
}

}  // namespace

CommandSpec InspectCommand() {
  CommandSpec command;
  command.name = "inspect";
  command.summary = "show what a state directory holds";
  command.positional = {"DIR"};
  command.flags = {{"records", "", "print every record of the journal"}};
  command.details =
      "Reads the files of state.dir and changes nothing; works beside a "
      "running\n"
      "coordinator and without one. With --records, a damaged journal is "
      "shown\n"
      "up to the damage.\n";
  command.example =
      "  dilococtl inspect state\n"
      "  dilococtl inspect state --records | tail\n";
  command.run = RunInspect;
  return command;
}

}  // namespace diloco

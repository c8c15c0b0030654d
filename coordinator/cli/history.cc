// `dilococtl history`: the rounds of a run, as its journal records them.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/format.h"
#include "coordinator/cli/message_json.h"
#include "coordinator/offline/run_archive.h"

namespace diloco {
namespace {

double Share(const RoundRecord& round, const RoundMember& member) {
  double total = 0;
  for (const RoundMember& other : round.closed->members) {
    total += static_cast<double>(other.weight);
  }
  return static_cast<double>(member.weight) / total;
}

double NormOf(const RoundRecord& round, const std::string& worker) {
  const auto update = round.updates.find(worker);
  return update == round.updates.end() ? 0 : update->second.norm;
}

std::string MemberText(const RoundRecord& round) {
  std::vector<std::string> words;
  for (const RoundMember& member : round.closed->members) {
    words.push_back(absl::StrFormat("%s %.0f%% |%.3g|", member.worker,
                                    100 * Share(round, member),
                                    NormOf(round, member.worker)));
  }
  for (const std::string& worker : round.closed->missing) {
    words.push_back(absl::StrCat("without ", worker));
  }
  for (const UpdateRefused& refused : round.refused) {
    words.push_back(
        absl::StrCat("refused ", refused.worker, ": ", refused.reason));
  }
  return absl::StrJoin(words, ", ");
}

std::string ChangesText(const SettingsChanged& changed) {
  std::vector<std::string> words;
  for (const SettingsChanged::Change& change : changed.changes) {
    words.push_back(
        absl::StrCat(change.key, " ", change.before, " -> ", change.after));
  }
  return absl::StrCat("settings by ", changed.by, ": ",
                      absl::StrJoin(words, ", "),
                      changed.reason.empty() ? "" : ": ", changed.reason);
}

// Who was left out, who came late, each with the reason.
void PrintExceptions(const RoundRecord& round) {
  for (const RoundOpened::Skipped& skipped : round.opened.skipped) {
    std::printf("        without %s: %s\n", Printable(skipped.worker).c_str(),
                Printable(skipped.reason).c_str());
  }
  for (const LeaseAdded& late : round.late) {
    std::printf("        late %s: %s\n", Printable(late.lease.worker).c_str(),
                Printable(late.reason).c_str());
  }
}

// The round's number, before it that of its fragment when there are several.
std::string NumberText(const RoundRecord& round, bool several) {
  return several ? absl::StrFormat("%4d %6d", round.opened.fragment,
                                   round.opened.round)
                 : absl::StrFormat("%6d", round.opened.round);
}

void PrintRound(const RoundRecord& round, bool several) {
  for (const SettingsChanged& changed : round.settings) {
    std::printf("        %s\n", Printable(ChangesText(changed)).c_str());
  }
  PrintExceptions(round);
  if (!round.closed.has_value()) {
    std::printf(round.undone ? "%s   undone: %zu of %zu updates were in\n"
                             : "%s  open: %zu of %zu updates in\n",
                NumberText(round, several).c_str(), round.updates.size(),
                round.opened.leases.size());
    return;
  }
  const RoundClosed& closed = *round.closed;
  const std::string version = round.undone ? "undone"
                              : round.published.has_value()
                                  ? absl::StrCat(round.published->version)
                              : closed.members.empty() ? "void"
                                                       : "folding";
  std::printf(
      "%s %8s %8.4f %9s %9s  %s; %s%s\n", NumberText(round, several).c_str(),
      version.c_str(), closed.loss,
      !round.restarted
          ? FormatSeconds(absl::ToDoubleSeconds(closed.duration)).c_str()
          : "-",
      round.published.has_value()
          ? FormatCount(round.published->folded_tokens).c_str()
          : "-",
      closed.reason.c_str(), MemberText(round).c_str(),
      round.extended.empty()
          ? ""
          : absl::StrCat("; extended ", round.extended.size(),
                         round.extended.size() == 1 ? " time" : " times")
                .c_str());
}

nlohmann::ordered_json HistoryJson(const RoundRecord& round) {
  nlohmann::ordered_json json;
  json["fragment"] = round.opened.fragment;
  json["round"] = round.opened.round;
  json["undone"] = round.undone;
  json["base_version"] = round.opened.base_version;
  json["opened_because"] = round.opened.reason;
  json["deadline_seconds"] = absl::ToDoubleSeconds(round.opened.deadline);
  json["leases"] = nlohmann::ordered_json::array();
  for (const Lease& lease : round.opened.leases) {
    json["leases"].push_back({{"worker", lease.worker},
                              {"steps", lease.steps},
                              {"tokens", lease.tokens}});
  }
  json["skipped"] = nlohmann::ordered_json::array();
  for (const RoundOpened::Skipped& skipped : round.opened.skipped) {
    json["skipped"].push_back(
        {{"worker", skipped.worker}, {"reason", skipped.reason}});
  }
  json["late"] = nlohmann::ordered_json::array();
  for (const LeaseAdded& late : round.late) {
    json["late"].push_back({{"worker", late.lease.worker},
                            {"steps", late.lease.steps},
                            {"tokens", late.lease.tokens},
                            {"reason", late.reason}});
  }
  json["extensions"] = nlohmann::ordered_json::array();
  for (const RoundExtended& extended : round.extended) {
    json["extensions"].push_back(extended.reason);
  }
  json["refused"] = nlohmann::ordered_json::array();
  for (const UpdateRefused& refused : round.refused) {
    nlohmann::ordered_json& entry = json["refused"].emplace_back();
    entry["worker"] = refused.worker;
    entry["reason"] = refused.reason;
    entry["screen"] = ScreenName(refused.screen);
    if (refused.screen == Screen::kNorm) {
      entry["norm_per_lr"] = refused.figure;
      entry["limit"] = refused.limit;
    }
    entry["digest"] = refused.digest.ToHex();
  }
  json["settings"] = nlohmann::ordered_json::array();
  for (const SettingsChanged& changed : round.settings) {
    json["settings"].push_back(ChangesText(changed));
  }
  if (!round.closed.has_value()) return json;
  json["closed_because"] = round.closed->reason;
  if (!round.restarted) {
    json["duration_seconds"] = absl::ToDoubleSeconds(round.closed->duration);
  } else {
    json["duration_seconds"] = nullptr;
  }
  json["loss"] = round.closed->loss;
  json["merge_rule"] = MergeRuleName(round.closed->merge);
  json["outer_lr"] = round.closed->outer_lr;
  json["members"] = nlohmann::ordered_json::array();
  for (const RoundMember& member : round.closed->members) {
    json["members"].push_back({{"worker", member.worker},
                               {"weight", member.weight},
                               {"share", Share(round, member)},
                               {"tokens", member.tokens},
                               {"norm", NormOf(round, member.worker)},
                               {"norm_per_lr", member.norm_per_lr},
                               {"digest", member.digest.ToHex()}});
  }
  json["missing"] = round.closed->missing;
  if (!round.published.has_value()) return json;
  json["version"] = round.published->version;
  json["digest"] = round.published->digest.ToHex();
  json["folded_tokens"] = round.published->folded_tokens;
  return json;
}

absl::Status RunHistory(const Invocation& invocation) {
  ASSIGN_OR_RETURN(
      const std::unique_ptr<RunArchive> archive,
      RunArchive::Read(FileSystem::Posix(), invocation.positional[0]));
  const bool several = archive->state().fragments.size() > 1;
  if (!invocation.json) {
    if (several) std::printf("%4s ", "FRAG");
    std::printf("%6s %8s %8s %9s %9s  %s\n", "ROUND", "VERSION", "LOSS", "TOOK",
                "TOKENS", "WHY; WORKER SHARE |NORM OF ITS UPDATE|");
  }
  for (const RoundRecord& round : archive->rounds()) {
    if (invocation.json) {
      std::printf("%s\n", JsonLine(HistoryJson(round)).c_str());
    } else {
      PrintRound(round, several);
    }
  }
  return absl::OkStatus();
}

}  // namespace

CommandSpec HistoryCommand() {
  CommandSpec command;
  command.name = "history";
  command.summary = "list the rounds: who, weights, norms, times, reasons";
  command.positional = {"DIR"};
  command.details =
      "Reads the journal in a state directory. LOSS is the mean training loss\n"
      "of the round's windows; TOOK counts from the opening, or from a "
      "restart\n"
      "of the coordinator in between; undone is what a rollback or a restored\n"
      "backup left behind. --json prints one object a round, with the figures "
      "of\n"
      "screens.\n";
  command.example =
      "  dilococtl history state\n"
      "  dilococtl history state --json | jq 'select(.missing != [])'\n";
  command.run = RunHistory;
  return command;
}

}  // namespace diloco

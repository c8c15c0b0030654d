// `dilococtl ledger`: what became of the data that workers drew, as the journal
// records it, and whether that adds up.
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/message_json.h"
#include "coordinator/offline/run_archive.h"

namespace diloco {
namespace {

using Tokens = std::map<WindowFate, uint64_t>;

std::string FateColumns(const Tokens& tokens) {
  std::string text;
  for (const WindowFate fate : kWindowFates) {
    const auto found = tokens.find(fate);
    absl::StrAppendFormat(&text, " %12d",
                          found == tokens.end() ? 0 : found->second);
  }
  return text;
}

std::string FateHeader() {
  std::string text;
  for (const WindowFate fate : kWindowFates) {
    absl::StrAppendFormat(&text, " %12s", WindowFateName(fate));
  }
  return text;
}

void PrintWindow(const LedgerWindow& window) {
  const std::string range =
      window.end == 0 ? "-" : absl::StrCat(window.first, "..", window.end);
  std::printf("%4u %6llu  %-16s %20s %10llu  %s%s%s\n", window.fragment,
              static_cast<unsigned long long>(window.round),
              Printable(window.worker).c_str(), range.c_str(),
              static_cast<unsigned long long>(window.tokens),
              WindowFateName(window.fate),
              window.again == 0
                  ? ""
                  : absl::StrCat(", ", window.again, " of them again").c_str(),
              window.reason.empty()
                  ? ""
                  : absl::StrCat(": ", Printable(window.reason)).c_str());
}

nlohmann::ordered_json WindowJson(const LedgerWindow& window) {
  nlohmann::ordered_json json;
  json["fragment"] = window.fragment;
  json["round"] = window.round;
  json["worker"] = window.worker;
  if (window.end == 0) {
    json["range"] = nullptr;
  } else {
    json["range"] = {window.first, window.end};
  }
  json["tokens"] = window.tokens;
  json["counted"] = window.counted;
  json["again"] = window.again;
  json["fate"] = WindowFateName(window.fate);
  if (!window.reason.empty()) json["reason"] = window.reason;
  return json;
}

nlohmann::ordered_json BalanceJson(const LedgerBalance& balance) {
  nlohmann::ordered_json json;
  json["windows"] = balance.windows;
  for (const auto& [fate, tokens] : balance.tokens) {
    json[WindowFateName(fate)] = tokens;
  }
  json["reached"] = balance.reached;
  json["again"] = balance.again;
  json["unplaced"] = balance.unplaced;
  json["unexplained"] = balance.unexplained;
  json["uncounted"] = balance.uncounted;
  json["closes"] = balance.closes();
  return json;
}

void PrintText(const RunArchive& archive,
               const std::vector<LedgerBalance>& balances, bool windows) {
  const Ledger& ledger = archive.ledger();
  if (windows) {
    std::printf("%4s %6s  %-16s %20s %10s  %s\n", "FRAG", "ROUND", "WORKER",
                "RANGE", "TOKENS", "FATE");
    for (const LedgerWindow& window : ledger.windows()) PrintWindow(window);
  }
  std::printf("%4s  %-16s%s %12s\n", "FRAG", "WORKER", FateHeader().c_str(),
              "again");
  for (uint32_t f = 0; f < balances.size(); ++f) {
    std::map<std::string, std::pair<Tokens, uint64_t>> by_worker;
    for (const LedgerWindow& window : ledger.windows()) {
      if (window.fragment != f) continue;
      by_worker[window.worker].first[window.fate] += window.tokens;
      by_worker[window.worker].second += window.again;
    }
    for (const auto& [worker, sums] : by_worker) {
      std::printf("%4u  %-16s%s %12llu\n", f, Printable(worker).c_str(),
                  FateColumns(sums.first).c_str(),
                  static_cast<unsigned long long>(sums.second));
    }
    std::printf("%4u  %-16s%s %12llu\n", f, "all",
                FateColumns(balances[f].tokens).c_str(),
                static_cast<unsigned long long>(balances[f].again));
  }
}

absl::Status RunLedger(const Invocation& invocation) {
  const std::string& dir = invocation.positional[0];
  ASSIGN_OR_RETURN(const std::unique_ptr<RunArchive> archive,
                   RunArchive::Read(FileSystem::Posix(), dir));
  const Ledger& ledger = archive->ledger();
  std::vector<LedgerBalance> balances;
  std::vector<std::string> open;
  uint64_t unplaced = 0;
  for (uint32_t f = 0; f < archive->state().fragments.size(); ++f) {
    balances.push_back(ledger.Balance(f, archive->state().fragments[f]));
    const LedgerBalance& balance = balances.back();
    unplaced += balance.unplaced;
    if (balance.closes()) continue;
    open.push_back(absl::StrCat("fragment ", f, ": ", balance.unexplained,
                                " tokens unexplained, ", balance.uncounted,
                                " not as the run counts folded tokens"));
  }
  if (invocation.json) {
    nlohmann::ordered_json json;
    json["closes"] = open.empty();
    json["fragments"] = nlohmann::ordered_json::array();
    for (const LedgerBalance& balance : balances) {
      json["fragments"].push_back(BalanceJson(balance));
    }
    json["windows"] = nlohmann::ordered_json::array();
    for (const LedgerWindow& window : ledger.windows()) {
      json["windows"].push_back(WindowJson(window));
    }
    std::printf("%s\n", JsonLine(json).c_str());
  } else {
    PrintText(*archive, balances, invocation.Has("windows"));
    if (unplaced > 0) {
      std::printf(
          "%llu tokens are of updates that do not tell where in the data they "
          "are\n",
          static_cast<unsigned long long>(unplaced));
    }
    if (open.empty()) std::printf("the ledger closes to zero\n");
  }
  if (open.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      dir, ": the ledger does not close: ", absl::StrJoin(open, "; "),
      "; expected after restore --accept-loss, otherwise check "
      "the journal with verify"));
}

}  // namespace

CommandSpec LedgerCommand() {
  CommandSpec command;
  command.name = "ledger";
  command.summary = "what became of the data that workers drew";
  command.positional = {"DIR"};
  command.flags = {{"windows", "", "each one, with its range of tokens"}};
  command.details =
      "Reads the journal in a state directory, also beside its coordinator. A\n"
      "window is what a worker trained between two updates of a fragment:\n"
      "pending, folded, discarded (refused, void, undone), overwritten (never\n"
      "handed in) or lost (with the worker's disk). What workers hold of open\n"
      "windows is not in the journal. --json prints all windows.\n"
      "Exit code 1 when the figures do not add up.\n";
  command.example = "  dilococtl ledger state --windows\n";
  command.run = RunLedger;
  return command;
}

}  // namespace diloco

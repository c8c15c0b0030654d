// `dilococtl verify`: every checksum and reference of a state directory.
#include "coordinator/offline/verify.h"

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/message_json.h"

namespace diloco {
namespace {

void PrintFinding(const Finding& finding, bool as_json) {
  const bool good = finding.kind == Finding::Kind::kGood;
  if (as_json) {
    const nlohmann::ordered_json json = {{"good", good},
                                         {"what", finding.text}};
    std::printf("%s\n", JsonLine(json).c_str());
  } else {
    std::printf("%s  %s\n", good ? "good   " : "PROBLEM", finding.text.c_str());
  }
  // Large images take a while.
  std::fflush(stdout);
}

absl::Status RunVerify(const Invocation& invocation) {
  int problems = 0;
  ASSIGN_OR_RETURN(const bool good,
                   VerifyStateDir(FileSystem::Posix(), invocation.positional[0],
                                  [&](const Finding& finding) {
                                    if (finding.kind == Finding::Kind::kProblem)
                                      ++problems;
                                    PrintFinding(finding, invocation.json);
                                  }));
  if (good) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      invocation.positional[0], ": ", problems,
      problems == 1 ? " problem" : " problems",
      "; restore what is named from a backup, or roll back to a version that "
      "is good"));
}

}  // namespace

CommandSpec VerifyCommand() {
  CommandSpec command;
  command.name = "verify";
  command.summary = "check every checksum and reference of a state directory";
  command.positional = {"DIR"};
  command.details =
      "Reads all images, update blobs and updates that are kept, and folds "
      "the\n"
      "rounds whose updates are there again: all digests must be those that "
      "the\n"
      "journal published. Changes nothing. Beside a running coordinator, it "
      "begins\n"
      "again when retention takes a file meanwhile.\n"
      "Exit code 1 when there is a problem.\n";
  command.example = "  dilococtl verify state\n";
  command.run = RunVerify;
  return command;
}

}  // namespace diloco

// `dilococtl report`: the closing summary of a run, also useful in mid-run.
#include <cstdio>
#include <string>

#include "common/base/status_macros.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/message_json.h"
#include "coordinator/cli/run_report.h"

namespace diloco {
namespace {

absl::Status RunReportCommand(const Invocation& invocation) {
  AdminClient client(invocation.coordinator);
  ASSIGN_OR_RETURN(const v1::StatusResponse status, client.GetStatus());
  const RunReport report = MakeRunReport(status);
  const std::string text = invocation.json
                               ? JsonLine(ReportJson(status, report)) + "\n"
                               : ReportText(status, report);
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

CommandSpec ReportCommand() {
  CommandSpec command;
  command.name = "report";
  command.summary = "sum up the run: loss, traffic against synchronous, time";
  command.details =
      "Steps are those whose tokens were folded. Bytes (on the wire, headers\n"
      "included) and times are what the workers counted since they last "
      "started\n"
      "afresh. Synchronous training is taken as ring\n"
      "all-reduce of fp32 gradients at each inner step: with k workers each "
      "one\n"
      "sends 2 (k - 1) / k x 4 bytes a parameter and receives as much.\n";
  command.example = "  dilococtl report\n";
  command.run = RunReportCommand;
  return command;
}

}  // namespace diloco

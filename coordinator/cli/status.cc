// `dilococtl status`: everything about the run at once.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/format.h"
#include "coordinator/cli/message_json.h"

namespace diloco {
namespace {

std::string RoundText(const v1::RoundStatus& round, bool several) {
  std::string text = absl::StrCat(
      several ? absl::StrCat("  fragment ", round.fragment(), ": ") : "  ",
      "version   ", round.version(), ", digest ",
      ToHex(round.digest()).substr(0, 12));
  if (round.folding()) {
    absl::StrAppend(&text, ", folding");
  } else if (round.round() > 0) {
    absl::StrAppend(&text, "; round ", round.round(), " open for ",
                    FormatSeconds(round.open_seconds()), ", ",
                    round.delivered(), " of ", round.leased(),
                    " updates in, deadline ",
                    FormatSeconds(round.deadline_seconds()));
  }
  absl::StrAppend(&text, "\n");
  if (!round.opened_because().empty()) {
    absl::StrAppend(&text, "  opened    ", Printable(round.opened_because()),
                    "\n");
  }
  if (round.late_size() > 0) {
    absl::StrAppend(&text, "  late      ",
                    Printable(absl::StrJoin(round.late(), ", ")),
                    ", not waited for\n");
  }
  return text;
}

std::string EvalText(const v1::StatusResponse& status) {
  const v1::EvalStatus& eval = status.eval();
  std::string text = absl::StrFormat("  eval      loss %.4f, perplexity %.1f",
                                     eval.loss(), std::exp(eval.loss()));
  if (eval.bits_per_byte() > 0) {
    absl::StrAppend(
        &text, absl::StrFormat(", %.3f bits per byte", eval.bits_per_byte()));
  }
  return absl::StrCat(text, " at version ", eval.version(), "\n");
}

std::string WorkerText(const v1::WorkerStatus& worker) {
  const v1::ProgressReport& beat = worker.progress();
  const std::string state = worker.membership() != "active"
                                ? worker.membership()
                            : worker.draining()    ? "draining"
                            : beat.state().empty() ? worker.membership()
                                                   : beat.state();
  // Nothing is known before the first step.
  const bool trained = beat.tokens() > 0;
  return absl::StrFormat(
             "  %-14s %-10s %7d %9s %8s %8s %9s  %s\n",
             Printable(worker.name()), Printable(state), worker.rounds_folded(),
             FormatCount(worker.tokens_folded()),
             trained ? absl::StrFormat("%.4f", beat.loss()) : "-",
             worker.tokens_per_second() > 0 ? FormatCount(static_cast<uint64_t>(
                                                  worker.tokens_per_second()))
                                            : "-",
             FormatSeconds(worker.seconds_since_heard()),
             Printable(worker.peer())) +
         (worker.refusal().empty()
              ? ""
              : absl::StrCat("    refused: ", Printable(worker.refusal()),
                             "\n"));
}

std::string StatusText(const v1::StatusResponse& status) {
  std::string text = absl::StrCat("run ", Printable(status.run()), ": ",
                                  FormatPhase(status.phase()));
  if (!status.phase_reason().empty()) {
    absl::StrAppend(&text, " (", Printable(status.phase_reason()), ")");
  }
  const double share = status.train_tokens() > 0
                           ? 100.0 *
                                 static_cast<double>(status.folded_tokens()) /
                                 static_cast<double>(status.train_tokens())
                           : 0;
  absl::StrAppend(&text,
                  absl::StrFormat("\n  tokens    %s of %s folded (%.1f%%), "
                                  "%s parameters\n",
                                  FormatCount(status.folded_tokens()),
                                  FormatCount(status.train_tokens()), share,
                                  FormatCount(status.parameters())));
  if (status.settings_revision() > 0) {
    absl::StrAppend(&text, "  settings  revision ", status.settings_revision(),
                    "; dilococtl set --list shows them\n");
  }
  for (const v1::RoundStatus& round : status.rounds()) {
    absl::StrAppend(&text, RoundText(round, status.rounds_size() > 1));
  }
  if (status.has_eval() && status.eval().tokens() > 0) {
    absl::StrAppend(&text, EvalText(status));
  }
  absl::StrAppend(
      &text, "  traffic   ",
      FormatBytes(static_cast<double>(status.bytes_received())),
      " from workers, ", FormatBytes(static_cast<double>(status.bytes_sent())),
      " to workers, since the coordinator's start\n  process   up ",
      FormatSeconds(status.uptime_seconds()), ", epoch ",
      status.fencing().epoch(), ", ",
      status.ready()
          ? "ready"
          : absl::StrCat("not ready: ", Printable(status.not_ready_reason())),
      "\n");
  if (status.workers_size() == 0) return text + "  no worker has joined\n";
  absl::StrAppend(&text,
                  absl::StrFormat("  %-14s %-10s %7s %9s %8s %8s %9s  %s\n",
                                  "WORKER", "STATE", "ROUNDS", "TOKENS", "LOSS",
                                  "TOK/S", "HEARD", "FROM"));
  for (const v1::WorkerStatus& worker : status.workers()) {
    absl::StrAppend(&text, WorkerText(worker));
  }
  return text;
}

absl::Status RunStatus(const Invocation& invocation) {
  AdminClient client(invocation.coordinator);
  ASSIGN_OR_RETURN(const v1::StatusResponse status, client.GetStatus());
  const std::string text = invocation.json
                               ? JsonLine(MessageToJson(status)) + "\n"
                               : StatusText(status);
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

CommandSpec StatusCommand() {
  CommandSpec command;
  command.name = "status";
  command.summary = "show run, round, evaluation and workers";
  command.example =
      "  dilococtl status\n"
      "  dilococtl status --json | jq .folded_tokens\n";
  command.run = RunStatus;
  return command;
}

}  // namespace diloco

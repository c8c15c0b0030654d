#include "coordinator/cli/run_report.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/cli/format.h"
#include "coordinator/cli/message_json.h"

namespace diloco {

RunReport MakeRunReport(const v1::StatusResponse& status) {
  RunReport report;
  report.parameters = status.parameters();
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.rounds_folded() == 0) continue;
    const v1::ProgressReport& beat = worker.progress();
    ++report.workers;
    report.counted_steps += beat.inner_steps();
    report.sent += static_cast<double>(beat.bytes_sent());
    report.received += static_cast<double>(beat.bytes_received());
    report.train_seconds += beat.train_seconds();
    report.transfer_seconds += beat.transfer_seconds();
    report.wait_seconds += beat.wait_seconds();
  }
  report.inner_steps = status.batch_tokens() > 0
                           ? status.folded_tokens() / status.batch_tokens()
                           : report.counted_steps;
  if (report.workers > 0) {
    const double k = report.workers;
    report.synchronous_sent = static_cast<double>(report.counted_steps) * 2 *
                              (k - 1) / k * 4 *
                              static_cast<double>(report.parameters);
  }
  if (report.sent > 0)
    report.ratio_sent = report.synchronous_sent / report.sent;
  if (report.sent + report.received > 0) {
    report.ratio_total =
        2 * report.synchronous_sent / (report.sent + report.received);
  }
  const double busy =
      report.train_seconds + report.transfer_seconds + report.wait_seconds;
  if (busy > 0) report.utilisation = report.train_seconds / busy;
  return report;
}

std::string ReportText(const v1::StatusResponse& status,
                       const RunReport& report) {
  std::string text = absl::StrFormat(
      "run %s: %s tokens folded from %d workers, %s inner steps in "
      "all\n",
      status.run(), FormatCount(status.folded_tokens()), report.workers,
      FormatCount(report.inner_steps));
  if (status.has_eval() && status.eval().tokens() > 0) {
    const double loss = status.eval().loss();
    absl::StrAppend(
        &text, absl::StrFormat("  eval loss        %.4f at version %d, "
                               "perplexity %.1f",
                               loss, status.eval().version(), std::exp(loss)));
    if (status.eval().bits_per_byte() > 0) {
      absl::StrAppend(&text, absl::StrFormat(", %.3f bits per byte",
                                             status.eval().bits_per_byte()));
    }
    absl::StrAppend(&text, "\n");
  }
  absl::StrAppend(&text, "  bytes            ", FormatBytes(report.sent),
                  " sent, ", FormatBytes(report.received),
                  " received by the workers\n");
  if (report.counted_steps < report.inner_steps) {
    absl::StrAppend(&text, "                   counted over ",
                    FormatCount(report.counted_steps),
                    " steps, as what follows: since the workers last started "
                    "afresh\n");
  }
  if (report.synchronous_sent > 0) {
    absl::StrAppend(
        &text,
        absl::StrFormat("  synchronous      %s each way (all-reduce of fp32 "
                        "gradients at each step)\n"
                        "  fewer bytes      %.1f times sent, %.1f times in "
                        "total\n",
                        FormatBytes(report.synchronous_sent), report.ratio_sent,
                        report.ratio_total));
  }
  absl::StrAppend(
      &text, absl::StrFormat(
                 "  utilisation      %.1f%% of the workers' time in "
                 "training (%s), transfer %s, waiting %s\n",
                 100 * report.utilisation, FormatSeconds(report.train_seconds),
                 FormatSeconds(report.transfer_seconds),
                 FormatSeconds(report.wait_seconds)));
  return text;
}

nlohmann::ordered_json ReportJson(const v1::StatusResponse& status,
                                  const RunReport& report) {
  nlohmann::ordered_json json;
  json["run"] = status.run();
  json["folded_tokens"] = status.folded_tokens();
  json["workers"] = report.workers;
  json["inner_steps"] = report.inner_steps;
  json["counted_steps"] = report.counted_steps;
  json["parameters"] = report.parameters;
  json["eval"] = nullptr;
  if (status.has_eval()) json["eval"] = MessageToJson(status.eval());
  json["bits_per_byte"] = status.eval().bits_per_byte();
  json["bytes_sent"] = report.sent;
  json["bytes_received"] = report.received;
  json["synchronous_bytes_sent"] = report.synchronous_sent;
  json["ratio_sent"] = report.ratio_sent;
  json["ratio_total"] = report.ratio_total;
  json["train_seconds"] = report.train_seconds;
  json["transfer_seconds"] = report.transfer_seconds;
  json["wait_seconds"] = report.wait_seconds;
  json["utilisation"] = report.utilisation;
  return json;
}

}  // namespace diloco

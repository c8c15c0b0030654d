#include "coordinator/cli/round_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/cli/format.h"

namespace diloco {
namespace {

// The coordinator's counters start anew when its process does.
uint64_t Growth(uint64_t now, uint64_t before) {
  return now >= before ? now - before : now;
}

std::string Share(double part, double whole) {
  return absl::StrFormat("%3.0f%%", 100 * part / whole);
}

}  // namespace

std::vector<RoundRow> RoundTable::Feed(const v1::AdminEvent& event) {
  const v1::Record& record = event.record();
  std::vector<RoundRow> complete;
  if (record.has_round_opened() && last_ms_ == 0) last_ms_ = event.unix_ms();
  if (record.has_round_opened()) {
    opened_.insert(record.round_opened().fragment());
  } else if (record.has_epoch_started()) {
    cut_ = restarted_ = true;
    opened_.clear();
  }
  if (record.has_worker_joined() && record.worker_joined().fresh() &&
      event.unix_ms() > 0) {
    totals_[record.worker_joined().worker()] = {};
  }
  if (record.has_round_closed()) {
    CloseRound(record.round_closed());
    if (record.round_closed().members_size() == 0) {
      complete = Flush();
      complete.push_back(closed_[record.round_closed().fragment()]);
    }
  } else if (record.has_lineage_started()) {
    complete = Flush();
    versions_.clear();
  } else if (record.has_version_published()) {
    const uint64_t version = ThetaVersion(event);
    complete = TakeWhile(version - std::min(version, versions_.size() - 1));
    Publish(event);
  }
  if (event.has_status()) AddEval(event.status());
  for (RoundRow& row : TakeWhile(0)) complete.push_back(std::move(row));
  return complete;
}

void RoundTable::BeginAt(const v1::StatusResponse& status) {
  RoundRow before;
  Measure(status, before);
  for (const v1::RoundStatus& round : status.rounds()) {
    cut_ = cut_ || round.round() > 0;
  }
}

std::vector<RoundRow> RoundTable::Flush() { return TakeWhile(UINT64_MAX); }

// Of the version that the event publishes.
uint64_t RoundTable::ThetaVersion(const v1::AdminEvent& event) {
  for (const v1::RoundStatus& round : event.status().rounds()) {
    versions_[round.fragment()] = round.version();
  }
  const v1::VersionPublishedFact& fact = event.record().version_published();
  versions_[fact.fragment()] = fact.version();
  uint64_t sum = 0;
  for (const auto& [fragment, version] : versions_) sum += version;
  return sum;
}

void RoundTable::CloseRound(const v1::RoundClosedFact& fact) {
  RoundRow& row = closed_[fact.fragment()] = RoundRow();
  row.fragment = fact.fragment();
  row.round = fact.round();
  row.updates = fact.members_size();
  row.missing = fact.missing_size();
  row.train_loss = fact.loss();
  if (!restarted_ || opened_.count(fact.fragment()) != 0) {
    row.seconds = static_cast<double>(fact.duration_ms()) / 1000;
  }
  row.void_reason = fact.members_size() == 0 ? fact.reason() : "";
  for (const auto& member : fact.members()) row.tokens += member.tokens();
}

void RoundTable::Publish(const v1::AdminEvent& event) {
  const v1::VersionPublishedFact& fact = event.record().version_published();
  // The round may have closed before the events that are still kept.
  const RoundRow& closed = closed_[fact.fragment()];
  RoundRow row = closed.round == fact.round() ? closed : RoundRow();
  row.fragment = fact.fragment();
  row.round = fact.round();
  row.version = ThetaVersion(event);
  row.folded_tokens = fact.folded_tokens();
  if (last_ms_ > 0 && event.unix_ms() > 0) {
    row.seconds = static_cast<double>(event.unix_ms() - last_ms_) / 1000;
  }
  last_ms_ = event.unix_ms();
  if (event.has_status()) {
    row.train_tokens = event.status().train_tokens();
    const bool whole = !cut_ || opened_.count(fact.fragment()) != 0;
    row.measured = event.unix_ms() > 0 && whole;
    if (event.unix_ms() > 0) Measure(event.status(), row);
  }
  waiting_.push_back(std::move(row));
}

void RoundTable::Measure(const v1::StatusResponse& status, RoundRow& row) {
  row.bytes_up = Growth(status.bytes_received(), last_up_);
  row.bytes_down = Growth(status.bytes_sent(), last_down_);
  last_up_ = status.bytes_received();
  last_down_ = status.bytes_sent();
  for (const v1::WorkerStatus& worker : status.workers()) {
    const v1::ProgressReport& beat = worker.progress();
    const WorkerTotals now = {beat.train_seconds(), beat.transfer_seconds(),
                              beat.wait_seconds()};
    const auto it = totals_.emplace(worker.name(), now).first;
    const WorkerTotals before = std::exchange(it->second, now);
    // A crash takes what the worker's last checkpoint does not tell.
    row.train_seconds += std::max(0.0, now.train - before.train);
    row.transfer_seconds += std::max(0.0, now.transfer - before.transfer);
    row.wait_seconds += std::max(0.0, now.wait - before.wait);
  }
}

void RoundTable::AddEval(const v1::StatusResponse& status) {
  if (!status.has_eval()) return;
  for (RoundRow& row : waiting_) {
    if (row.version != status.eval().version()) continue;
    row.eval_loss = status.eval().loss();
    row.bits_per_byte = status.eval().bits_per_byte();
  }
}

// The rows at the front that have their evaluation, or are of older versions.
std::vector<RoundRow> RoundTable::TakeWhile(uint64_t older_than) {
  std::vector<RoundRow> rows;
  while (!waiting_.empty() && (waiting_.front().version < older_than ||
                               waiting_.front().eval_loss)) {
    rows.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return rows;
}

std::string RoundHeader() {
  return "round  tokens        updates  train   eval    bits/B  perpl.  "
         "tok/s   up       down     train/transfer/wait\n";
}

std::string RoundLine(const RoundRow& row) {
  // Round 12 of fragment 3 is 12/3.
  const std::string number =
      absl::StrCat(row.round, row.fragment > 0 ? absl::StrCat("/", row.fragment)
                                               : std::string());
  if (row.version == 0) {
    return absl::StrFormat("%5s  void: %s\n", number, row.void_reason);
  }
  std::string progress = FormatCount(row.folded_tokens);
  if (row.train_tokens > 0) {
    absl::StrAppend(&progress, "/", FormatCount(row.train_tokens));
  }
  const std::string updates =
      row.missing == 0
          ? absl::StrCat(row.updates)
          : absl::StrCat(row.updates, " of ", row.updates + row.missing);
  std::string eval = "-";
  std::string bits = "-";
  std::string perplexity = "-";
  if (row.eval_loss) {
    eval = absl::StrFormat("%.4f", *row.eval_loss);
    perplexity = absl::StrFormat("%.1f", std::exp(*row.eval_loss));
    if (row.bits_per_byte > 0) {
      bits = absl::StrFormat("%.3f", row.bits_per_byte);
    }
  }
  const std::string rate =
      row.seconds > 0
          ? FormatCount(static_cast<uint64_t>(row.tokens / row.seconds))
          : "-";
  const double busy =
      row.train_seconds + row.transfer_seconds + row.wait_seconds;
  const std::string shares =
      busy > 0 ? absl::StrCat(Share(row.train_seconds, busy), " ",
                              Share(row.transfer_seconds, busy), " ",
                              Share(row.wait_seconds, busy))
               : "-";
  const std::string up =
      row.measured ? FormatBytes(static_cast<double>(row.bytes_up)) : "-";
  const std::string down =
      row.measured ? FormatBytes(static_cast<double>(row.bytes_down)) : "-";
  return absl::StrFormat(
      "%5s  %-12s  %-7s  %.4f  %-6s  %-6s  %-6s  %-6s  %-7s  %-7s  %s\n",
      number, progress, updates, row.train_loss, eval, bits, perplexity, rate,
      up, down, shares);
}

nlohmann::ordered_json RoundJson(const RoundRow& row) {
  nlohmann::ordered_json json;
  json["fragment"] = row.fragment;
  json["round"] = row.round;
  json["version"] = row.version;
  json["void_reason"] = row.void_reason;
  json["updates"] = row.updates;
  json["missing"] = row.missing;
  json["train_loss"] = row.train_loss;
  json["eval_loss"] = nullptr;
  if (row.eval_loss) json["eval_loss"] = *row.eval_loss;
  json["bits_per_byte"] = row.bits_per_byte;
  json["folded_tokens"] = row.folded_tokens;
  json["train_tokens"] = row.train_tokens;
  json["seconds"] = row.seconds;
  json["tokens"] = row.tokens;
  for (const char* key : {"bytes_up", "bytes_down", "train_seconds",
                          "transfer_seconds", "wait_seconds"}) {
    json[key] = nullptr;
  }
  if (!row.measured) return json;
  json["bytes_up"] = row.bytes_up;
  json["bytes_down"] = row.bytes_down;
  json["train_seconds"] = row.train_seconds;
  json["transfer_seconds"] = row.transfer_seconds;
  json["wait_seconds"] = row.wait_seconds;
  return json;
}

}  // namespace diloco

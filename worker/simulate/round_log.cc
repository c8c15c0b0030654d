#include "worker/simulate/round_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace diloco::sim {
namespace {

double SecondsOf(const EventReport& event) {
  return absl::ToDoubleSeconds(event.wall_time.value_or(absl::UnixEpoch()) -
                               absl::UnixEpoch());
}

}  // namespace

std::string RoundJson(const RoundRow& row) {
  nlohmann::ordered_json json;
  json["round"] = row.round;
  json["version"] = row.version;
  json["void_reason"] = row.void_reason;
  json["updates"] = row.updates;
  json["missing"] = row.missing;
  json["train_loss"] = row.train_loss;
  json["eval_loss"] = nullptr;
  if (row.eval_loss.has_value()) json["eval_loss"] = *row.eval_loss;
  json["bits_per_byte"] = row.bits_per_byte;
  json["folded_tokens"] = row.folded_tokens;
  json["train_tokens"] = row.train_tokens;
  json["seconds"] = row.seconds;
  json["tokens"] = row.tokens;
  json["bytes_up"] = row.bytes_up;
  json["bytes_down"] = row.bytes_down;
  json["train_seconds"] = row.train_seconds;
  json["transfer_seconds"] = row.transfer_seconds;
  json["wait_seconds"] = row.wait_seconds;
  json["fragment"] = row.fragment;
  json["digest"] = row.digest.ToHex();
  json["at"] = row.at;
  return json.dump();
}

std::string RoundLine(const RoundRow& row) {
  const std::string at =
      absl::StrCat("at ", absl::FormatDuration(absl::Trunc(
                              absl::Seconds(row.at), absl::Milliseconds(100))));
  if (row.version == 0) {
    return absl::StrFormat("round %d | void: %s | %s", row.round,
                           row.void_reason, at);
  }
  std::string line = absl::StrFormat(
      "round %d | %.1f%% of the tokens | %d updates", row.round,
      100.0 * static_cast<double>(row.folded_tokens) /
          static_cast<double>(std::max<uint64_t>(1, row.train_tokens)),
      row.updates);
  if (row.missing > 0) absl::StrAppend(&line, ", ", row.missing, " missing");
  absl::StrAppend(&line, absl::StrFormat(" | train %.4f", row.train_loss));
  if (row.eval_loss.has_value()) {
    absl::StrAppend(&line, absl::StrFormat(" | theta %.4f", *row.eval_loss));
    if (row.bits_per_byte > 0) {
      absl::StrAppend(&line,
                      absl::StrFormat(", %.3f bits/byte", row.bits_per_byte));
    }
  }
  return absl::StrCat(line, " | ", at);
}

void RoundLog::Feed(const EventReport& event) {
  if (const auto* fact = std::get_if<RoundClosed>(&event.fact)) {
    RoundRow row;
    row.fragment = fact->fragment;
    row.round = fact->round;
    row.updates = fact->members.size();
    row.missing = fact->missing.size();
    row.train_loss = fact->loss;
    for (const RoundMember& member : fact->members) row.tokens += member.tokens;
    if (!fact->members.empty()) {
      closed_[fact->fragment] = std::move(row);
      return;
    }
    row.void_reason = fact->reason;
    row.at = SecondsOf(event);
    rows_.push_back(std::move(row));
  } else if (const auto* version = std::get_if<VersionPublished>(&event.fact)) {
    Publish(*version, event);
  }
  if (!event.status.has_value() || !event.status->eval.has_value()) return;
  const EvalResult& eval = *event.status->eval;
  for (RoundRow& row : rows_) {
    if (row.version != eval.version) continue;
    row.eval_loss = eval.loss;
    const double bytes = event.status->bytes_per_token;
    constexpr double kLn2 = 0.69314718055994531;
    if (bytes > 0) row.bits_per_byte = eval.loss / kLn2 / bytes;
  }
}

void RoundLog::Publish(const VersionPublished& fact, const EventReport& event) {
  RoundRow row = std::exchange(closed_[fact.fragment], RoundRow());
  versions_[fact.fragment] = fact.version;
  for (const auto& [fragment, version] : versions_) row.version += version;
  row.digest = fact.digest;
  row.folded_tokens = fact.folded_tokens;
  row.at = SecondsOf(event);
  row.seconds = row.at - (rows_.empty() ? 0 : rows_.back().at);
  if (event.status.has_value()) {
    row.train_tokens = event.status->train_tokens;
    Measure(*event.status, row);
  }
  rows_.push_back(std::move(row));
}

void RoundLog::Measure(const StatusReport& status, RoundRow& row) {
  Totals now;
  now.up = status.bulk_bytes_received;
  now.down = status.bulk_bytes_sent;
  for (const WorkerReport& worker : status.workers) {
    now.train += worker.progress.train_seconds;
    now.transfer += worker.progress.transfer_seconds;
    now.wait += worker.progress.wait_seconds;
  }
  row.bytes_up = now.up - before_.up;
  row.bytes_down = now.down - before_.down;
  // A crash takes what the worker's last checkpoint does not tell.
  row.train_seconds = std::max(0.0, now.train - before_.train);
  row.transfer_seconds = std::max(0.0, now.transfer - before_.transfer);
  row.wait_seconds = std::max(0.0, now.wait - before_.wait);
  before_ = now;
}

std::vector<RoundRow> RoundLog::Take(bool all) {
  std::vector<RoundRow> rows;
  while (told_ < rows_.size() &&
         (all || rows_[told_].eval_loss.has_value() ||
          rows_[told_].version == 0 || told_ + 1 < rows_.size())) {
    rows.push_back(rows_[told_++]);
  }
  return rows;
}

}  // namespace diloco::sim

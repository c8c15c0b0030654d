#include "coordinator/service/admin_codec.h"

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/version.h"
#include "common/rpc/message_codec.h"
#include "coordinator/service/control_codec.h"
#include "coordinator/store/fact_codec.h"

namespace diloco {
namespace {

constexpr double kLn2 = 0.693147180559945309417;

double Seconds(absl::Duration duration) {
  return absl::ToDoubleSeconds(duration);
}

void EncodeEval(const EvalResult& eval, double bytes_per_token,
                v1::EvalStatus* out) {
  out->set_version(eval.version);
  out->set_loss(eval.loss);
  if (bytes_per_token > 0) {
    out->set_bits_per_byte(eval.loss / kLn2 / bytes_per_token);
  }
  out->set_tokens(eval.tokens);
}

void EncodeWorker(const WorkerReport& worker, uint64_t batch_tokens,
                  v1::WorkerStatus* out) {
  out->set_name(worker.name);
  out->set_membership(worker.membership);
  out->set_draining(worker.draining);
  out->set_refusal(worker.refusal);
  out->set_peer(worker.peer);
  out->set_seconds_since_heard(Seconds(worker.since_heard));
  out->set_rounds_folded(worker.rounds_folded);
  out->set_tokens_folded(worker.tokens_folded);
  EncodeProgress(worker.progress, out->mutable_progress());
  out->set_leased(worker.leased);
  out->set_delivered(worker.delivered);
  if (worker.progress.step_seconds > 0) {
    out->set_tokens_per_second(static_cast<double>(batch_tokens) /
                               worker.progress.step_seconds);
  }
}

}  // namespace

void EncodeStatus(const StatusReport& report, v1::StatusResponse* out) {
  EncodeFencing(report.fencing, out->mutable_fencing());
  out->set_run(report.run);
  out->set_phase(EncodePhase(report.phase));
  out->set_phase_reason(report.phase_reason);
  out->set_folded_tokens(report.folded_tokens);
  out->set_train_tokens(report.train_tokens);
  out->set_batch_tokens(report.batch_tokens);
  out->set_settings_revision(report.settings_revision);
  out->set_parameters(static_cast<uint64_t>(report.parameters));
  for (size_t i = 0; i < report.fragments.size(); ++i) {
    const StatusReport::Fragment& fragment = report.fragments[i];
    v1::RoundStatus* to = out->add_rounds();
    to->set_fragment(static_cast<uint32_t>(i));
    to->set_round(fragment.open_round);
    to->set_version(fragment.version);
    to->set_digest(fragment.digest.ToBytes());
    to->set_open_seconds(Seconds(fragment.open_for));
    to->set_deadline_seconds(Seconds(fragment.deadline));
    to->set_leased(fragment.leased);
    to->set_delivered(fragment.delivered);
    to->set_folding(fragment.folding);
    to->set_opened_because(fragment.opened_because);
    for (const std::string& worker : fragment.late) to->add_late(worker);
  }
  for (const WorkerReport& worker : report.workers) {
    EncodeWorker(worker, report.batch_tokens, out->add_workers());
  }
  if (report.eval.has_value()) {
    EncodeEval(*report.eval, report.bytes_per_token, out->mutable_eval());
  }
  out->set_bytes_received(report.bulk_bytes_received);
  out->set_bytes_sent(report.bulk_bytes_sent);
  out->set_uptime_seconds(Seconds(report.uptime));
  out->set_build(BuildVersion());
  out->set_last_sequence(report.last_sequence);
  out->set_ready(report.not_ready.empty());
  out->set_not_ready_reason(report.not_ready);
  out->set_settings_digest(report.settings_digest.ToBytes());
}

void EncodeEvents(const EventsOutcome& outcome, size_t max_bytes,
                  v1::EventsResponse* out) {
  EncodeFencing(outcome.fencing, out->mutable_fencing());
  out->set_oldest_sequence(outcome.oldest_sequence);
  size_t bytes = 0;
  for (const EventReport& event : outcome.events) {
    v1::AdminEvent encoded;
    encoded.set_sequence(event.sequence);
    if (event.wall_time.has_value()) {
      encoded.set_unix_ms(absl::ToUnixMillis(*event.wall_time));
    }
    DILOCO_CHECK(encoded.mutable_record()->ParseFromString(
        EncodeFact(event.fact).payload));
    if (event.status.has_value()) {
      EncodeStatus(*event.status, encoded.mutable_status());
    }
    bytes += encoded.ByteSizeLong();
    if (bytes > max_bytes && out->events_size() > 0) return;
    *out->add_events() = std::move(encoded);
  }
}

absl::StatusOr<SettingsChange> DecodeSettingsChange(
    const v1::ChangeSettingsRequest& request, const std::string& peer) {
  SettingsChange change;
  change.decay_tokens = request.decay_tokens();
  change.by = request.by().empty() ? peer : request.by();
  change.reason = request.reason();
  for (const v1::SettingValue& value : request.values()) {
    if (!change.values.emplace(value.key(), value.value()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(value.key(), " is given twice"));
    }
  }
  if (change.values.empty() == (change.decay_tokens == 0)) {
    return absl::InvalidArgumentError(
        "a change gives values, or the tokens of the decay");
  }
  return change;
}

std::string SettingsMessage(const SettingsChanged& changed) {
  std::string message;
  for (const SettingsChanged::Change& change : changed.changes) {
    absl::StrAppend(&message, message.empty() ? "" : ", ", change.key, " ",
                    change.before, " -> ", change.after,
                    change.at_once
                        ? " at once"
                        : absl::StrCat(" from round ", changed.from_round));
  }
  return absl::StrCat(message, changed.reopens ? "; the run goes on" : "",
                      " (settings revision ", changed.revision, ")");
}

void EncodeSettings(const SettingsReport& report, v1::SettingsResponse* out) {
  EncodeFencing(report.fencing, out->mutable_fencing());
  out->set_revision(report.revision);
  for (const auto& [key, value] : report.in_force) {
    v1::SettingValue* to = out->add_in_force();
    to->set_key(key);
    to->set_value(value);
  }
  for (const auto& [key, value] : report.accepted) {
    v1::SettingValue* to = out->add_accepted();
    to->set_key(key);
    to->set_value(value);
  }
}

void EncodeExport(const CoordinatorOptions& options, const StatusReport& status,
                  const std::vector<ResolveOutcome>& fragments,
                  const std::vector<std::pair<std::string, FileRef>>& tokenizer,
                  v1::ExportDescription* out) {
  EncodeFencing(status.fencing, out->mutable_fencing());
  out->set_run(options.run);
  out->set_model_json(options.model_json);
  for (size_t i = 0; i < fragments.size(); ++i) {
    v1::FragmentFiles* to = out->add_fragments();
    to->set_fragment(static_cast<uint32_t>(i));
    to->set_version(fragments[i].version);
    for (const VersionStore::Step& step : fragments[i].steps) {
      EncodeStep(step, to->add_files());
    }
  }
  for (const auto& [name, file] : tokenizer) {
    v1::NamedFile* to = out->add_tokenizer();
    to->set_name(name);
    to->mutable_file()->set_kind(v1::FILE_KIND_TOKENIZER);
    to->mutable_file()->set_bytes(file.bytes);
    to->mutable_file()->set_digest(file.digest.ToBytes());
  }
  out->set_folded_tokens(status.folded_tokens);
  uint64_t version = 0;
  for (const ResolveOutcome& fragment : fragments) version += fragment.version;
  out->set_version(version);
  out->set_pattern(FragmentPatternName(options.settings.fragments.pattern));
  for (const std::string& names : options.settings.fragments.names) {
    out->add_fragment_names(names);
  }
  out->set_layout_digest(options.settings.layout_digest.ToBytes());
  if (status.eval.has_value()) {
    EncodeEval(*status.eval, status.bytes_per_token, out->mutable_eval());
  }
}

}  // namespace diloco

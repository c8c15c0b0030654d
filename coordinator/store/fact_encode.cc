#include "absl/time/time.h"
#include "common/base/utf8.h"
#include "coordinator/store/fact_codec.h"
#include "diloco/v1/journal.pb.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace diloco {
namespace {

constexpr uint32_t kRecordFormat = 1;

// A proto3 string that is not UTF-8 can be written but never read again.
std::string Text(absl::string_view text) {
  std::string safe;
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 0) {
      safe += '?';
      text.remove_prefix(1);
    } else {
      safe.append(text.data(), length);
      text.remove_prefix(length);
    }
  }
  return safe;
}

uint64_t ToMilliseconds(absl::Duration duration) {
  const int64_t milliseconds = absl::ToInt64Milliseconds(duration);
  return milliseconds > 0 ? static_cast<uint64_t>(milliseconds) : 0;
}

void Put(const FileRef& file, v1::StoredFile* out) {
  out->set_digest(file.digest.ToBytes());
  out->set_bytes(file.bytes);
}

void Put(const Lease& lease, v1::StoredLease* out) {
  out->set_worker(Text(lease.worker));
  out->set_steps(lease.steps);
  out->set_tokens(lease.tokens);
  out->set_carried_tokens(lease.carried_tokens);
  out->set_progress(lease.progress);
  out->set_progress_step(lease.progress_step);
  out->set_window_steps(lease.window_steps);
}

void Put(const UpdateValue& value, v1::StoredUpdateValue* out) {
  out->set_base_version(value.base_version);
  out->set_base_digest(value.base_digest.ToBytes());
  out->set_bytes(value.bytes);
  out->set_digest(value.digest.ToBytes());
  out->set_codec(static_cast<uint32_t>(value.codec));
  out->set_tokens(value.tokens);
  out->set_steps(value.steps);
  out->set_loss(value.loss);
  out->set_lr_sum(value.lr_sum);
  out->set_data_end(value.data_end);
}

v1::DepartureKind ToProto(Departure departure) {
  switch (departure) {
    case Departure::kLeft:
      return v1::DEPARTURE_KIND_LEFT;
    case Departure::kLost:
      return v1::DEPARTURE_KIND_LOST;
    case Departure::kEvicted:
      return v1::DEPARTURE_KIND_EVICTED;
    case Departure::kRefused:
      return v1::DEPARTURE_KIND_REFUSED;
  }
  return v1::DEPARTURE_KIND_UNSPECIFIED;
}

struct ToRecord {
  v1::Record& record;

  void operator()(const RunCreated& fact) {
    v1::RunCreatedFact* out = record.mutable_run_created();
    out->set_run(Text(fact.run));
    out->set_lineage(fact.lineage);
    out->set_settings_digest(fact.settings_digest.ToBytes());
    out->set_layout_digest(fact.layout_digest.ToBytes());
    for (const RunCreated::Fragment& fragment : fact.fragments) {
      v1::RunCreatedFact::Fragment* added = out->add_fragments();
      added->set_digest(fragment.digest.ToBytes());
      Put(fragment.theta_image, added->mutable_theta_image());
      Put(fragment.momentum_image, added->mutable_momentum_image());
      for (const MergeTensor& tensor : fragment.tensors) {
        v1::RunCreatedFact::Tensor* entry = added->add_tensors();
        entry->set_elements(static_cast<uint64_t>(tensor.elements));
        entry->set_embedding(tensor.embedding);
      }
    }
    out->set_format(kRecordFormat);
  }
  void operator()(const EpochStarted& fact) {
    v1::EpochStartedFact* out = record.mutable_epoch_started();
    out->set_epoch(fact.epoch);
    out->set_boot_nonce(fact.boot_nonce);
  }
  void operator()(const WorkerJoined& fact) {
    v1::WorkerJoinedFact* out = record.mutable_worker_joined();
    out->set_worker(Text(fact.worker));
    out->set_session(fact.session);
    out->set_attempt(fact.attempt);
    out->set_fresh(fact.fresh);
    out->set_peer(Text(fact.peer));
    out->set_previous_session(fact.previous_session);
  }
  void operator()(const WorkerReturned& fact) {
    record.mutable_worker_returned()->set_worker(Text(fact.worker));
  }
  void operator()(const WorkerDeparted& fact) {
    v1::WorkerDepartedFact* out = record.mutable_worker_departed();
    out->set_worker(Text(fact.worker));
    out->set_departure(ToProto(fact.departure));
    out->set_reason(Text(fact.reason));
  }
  void operator()(const DrainRequested& fact) {
    record.mutable_drain_requested()->set_worker(Text(fact.worker));
  }
  void operator()(const RoundOpened& fact) {
    v1::RoundOpenedFact* out = record.mutable_round_opened();
    out->set_fragment(fact.fragment);
    out->set_round(fact.round);
    out->set_base_version(fact.base_version);
    for (const Lease& lease : fact.leases) Put(lease, out->add_leases());
    for (const RoundOpened::Skipped& skipped : fact.skipped) {
      v1::RoundOpenedFact::Skipped* added = out->add_skipped();
      added->set_worker(Text(skipped.worker));
      added->set_reason(Text(skipped.reason));
    }
    out->set_deadline_ms(ToMilliseconds(fact.deadline));
    out->set_reason(Text(fact.reason));
  }
  void operator()(const RoundExtended& fact) {
    v1::RoundExtendedFact* out = record.mutable_round_extended();
    out->set_fragment(fact.fragment);
    out->set_round(fact.round);
    for (const Lease& lease : fact.added) Put(lease, out->add_added());
    out->set_reason(Text(fact.reason));
  }
  void operator()(const LeaseAdded& fact) {
    v1::LeaseAddedFact* out = record.mutable_lease_added();
    out->set_fragment(fact.fragment);
    out->set_round(fact.round);
    Put(fact.lease, out->mutable_lease());
    out->set_reason(Text(fact.reason));
  }
  void operator()(const UpdateCommitted& fact) {
    v1::UpdateCommittedFact* out = record.mutable_update_committed();
    out->set_fragment(fact.fragment);
    out->set_round(fact.round);
    out->set_worker(Text(fact.worker));
    Put(fact.value, out->mutable_value());
    out->set_max_abs(fact.max_abs);
    out->set_norm(fact.norm);
  }
  void operator()(const UpdateRefused& fact) {
    v1::UpdateRefusedFact* out = record.mutable_update_refused();
    out->set_fragment(fact.fragment);
    out->set_round(fact.round);
    out->set_worker(Text(fact.worker));
    out->set_digest(fact.digest.ToBytes());
    out->set_reason(Text(fact.reason));
    out->set_screen(static_cast<uint32_t>(fact.screen));
    out->set_figure(fact.figure);
    out->set_limit(fact.limit);
  }
  void operator()(const RoundClosed& fact) {
    v1::RoundClosedFact* out = record.mutable_round_closed();
    out->set_fragment(fact.fragment);
    out->set_round(fact.round);
    for (const RoundMember& member : fact.members) {
      v1::RoundClosedFact::Member* added = out->add_members();
      added->set_worker(Text(member.worker));
      added->set_weight(member.weight);
      added->set_digest(member.digest.ToBytes());
      added->set_tokens(member.tokens);
      added->set_norm_per_lr(member.norm_per_lr);
    }
    for (const std::string& worker : fact.missing) {
      out->add_missing(Text(worker));
    }
    out->set_loss(fact.loss);
    out->set_duration_ms(ToMilliseconds(fact.duration));
    out->set_outer_lr(fact.outer_lr);
    out->set_outer_momentum(fact.outer_momentum);
    out->set_nesterov(fact.nesterov);
    out->set_reason(Text(fact.reason));
    out->set_merge_rule(static_cast<uint32_t>(fact.merge));
  }
  void operator()(const VersionPublished& fact) {
    v1::VersionPublishedFact* out = record.mutable_version_published();
    out->set_fragment(fact.fragment);
    out->set_round(fact.round);
    out->set_version(fact.version);
    out->set_digest(fact.digest.ToBytes());
    Put(fact.blob, out->mutable_blob());
    Put(fact.theta_image, out->mutable_theta_image());
    Put(fact.momentum_image, out->mutable_momentum_image());
    out->set_folded_tokens(fact.folded_tokens);
  }
  void operator()(const EvalOpened& fact) {
    v1::EvalOpenedFact* out = record.mutable_eval_opened();
    out->set_version(fact.version);
    out->mutable_versions()->Add(fact.versions.begin(), fact.versions.end());
    for (const EvalOpened::Slice& slice : fact.slices) {
      v1::EvalOpenedFact::Slice* added = out->add_slices();
      added->set_worker(Text(slice.worker));
      added->set_first_window(slice.first_window);
      added->set_windows(slice.windows);
    }
  }
  void operator()(const EvalReassigned& fact) {
    v1::EvalReassignedFact* out = record.mutable_eval_reassigned();
    out->set_version(fact.version);
    out->set_slice(fact.slice);
    out->set_worker(Text(fact.worker));
    out->set_reason(Text(fact.reason));
  }
  void operator()(const EvalReported& fact) {
    v1::EvalReportedFact* out = record.mutable_eval_reported();
    out->set_version(fact.version);
    out->set_slice(fact.slice);
    out->set_worker(Text(fact.worker));
    out->set_loss_sum(fact.loss_sum);
    out->set_tokens(fact.tokens);
  }
  void operator()(const EvalAbandoned& fact) {
    v1::EvalAbandonedFact* out = record.mutable_eval_abandoned();
    out->set_version(fact.version);
    out->set_reason(Text(fact.reason));
  }
  void operator()(const PauseChanged& fact) {
    v1::PauseChangedFact* out = record.mutable_pause_changed();
    out->set_paused(fact.paused);
    out->set_guard(fact.guard);
    out->set_reason(Text(fact.reason));
  }
  void operator()(const StopRequested& fact) {
    v1::StopRequestedFact* out = record.mutable_stop_requested();
    out->set_after_round(fact.after_round);
    out->set_reason(Text(fact.reason));
  }
  void operator()(const RunFinished& fact) {
    record.mutable_run_finished()->set_reason(Text(fact.reason));
  }
  void operator()(const LineageStarted& fact) {
    v1::LineageStartedFact* out = record.mutable_lineage_started();
    out->set_lineage(fact.lineage);
    for (const LineageStarted::Fragment& fragment : fact.fragments) {
      v1::LineageStartedFact::Fragment* added = out->add_fragments();
      added->set_version(fragment.version);
      added->set_digest(fragment.digest.ToBytes());
      Put(fragment.theta_image, added->mutable_theta_image());
      Put(fragment.momentum_image, added->mutable_momentum_image());
      added->set_folded_tokens(fragment.folded_tokens);
    }
    out->set_folded_tokens(fact.folded_tokens);
    out->set_reason(Text(fact.reason));
  }
  void operator()(const SettingsChanged& fact) {
    v1::SettingsChangedFact* out = record.mutable_settings_changed();
    out->set_revision(fact.revision);
    for (const SettingsChanged::Change& change : fact.changes) {
      v1::SettingsChangedFact::Change* added = out->add_changes();
      added->set_key(Text(change.key));
      added->set_before(Text(change.before));
      added->set_after(Text(change.after));
      added->set_at_once(change.at_once);
    }
    out->set_from_round(fact.from_round);
    out->set_reopens(fact.reopens);
    out->set_settings_digest(fact.settings_digest.ToBytes());
    out->set_by(Text(fact.by));
    out->set_reason(Text(fact.reason));
  }
};

}  // namespace

EncodedFact EncodeFact(const Fact& fact) {
  v1::Record record;
  std::visit(ToRecord{record}, fact);
  EncodedFact encoded;
  encoded.type = static_cast<uint32_t>(record.fact_case());
  {
    google::protobuf::io::StringOutputStream bytes(&encoded.payload);
    google::protobuf::io::CodedOutputStream out(&bytes);
    out.SetSerializationDeterministic(true);
    record.SerializeToCodedStream(&out);
  }
  return encoded;
}

std::string FactTypeName(uint32_t type) {
  const auto* field =
      v1::Record::descriptor()->FindFieldByNumber(static_cast<int>(type));
  return field == nullptr ? "" : field->name();
}

}  // namespace diloco

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/store/fact_codec.h"
#include "diloco/v1/journal.pb.h"

namespace diloco {
namespace {

constexpr uint32_t kNewestRecordFormat = 1;

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(what);
}

absl::StatusOr<Digest> ToDigest(const std::string& raw) {
  auto digest = Digest::FromBytes(raw);
  if (!digest.ok()) return Damaged(digest.status().message());
  return *digest;
}

absl::StatusOr<FileRef> ToFile(const v1::StoredFile& file) {
  FileRef result;
  result.bytes = file.bytes();
  // A file that was not written has no message on disk.
  if (!file.digest().empty()) {
    ASSIGN_OR_RETURN(result.digest, ToDigest(file.digest()));
  }
  return result;
}

absl::StatusOr<absl::Duration> ToDuration(uint64_t milliseconds) {
  if (milliseconds >
      static_cast<uint64_t>(std::numeric_limits<int64_t>::max() / 1'000'000)) {
    return Damaged(absl::StrCat("duration of ", milliseconds, " ms"));
  }
  return absl::Milliseconds(static_cast<int64_t>(milliseconds));
}

template <typename E, size_t kCount>
absl::StatusOr<E> OneOf(const E (&known)[kCount], uint32_t number,
                        absl::string_view what) {
  for (const E value : known) {
    if (static_cast<uint32_t>(value) == number) return value;
  }
  return Damaged(absl::StrCat(what, " ", number));
}

Lease ToLease(const v1::StoredLease& lease) {
  Lease result;
  result.worker = lease.worker();
  result.steps = lease.steps();
  result.tokens = lease.tokens();
  result.carried_tokens = lease.carried_tokens();
  result.progress = lease.progress();
  result.progress_step = lease.progress_step();
  result.window_steps = lease.window_steps();
  return result;
}

absl::StatusOr<UpdateValue> ToValue(const v1::StoredUpdateValue& value) {
  UpdateValue result;
  result.base_version = value.base_version();
  ASSIGN_OR_RETURN(result.base_digest, ToDigest(value.base_digest()));
  result.bytes = value.bytes();
  ASSIGN_OR_RETURN(result.digest, ToDigest(value.digest()));
  const auto codec = CodecFromId(value.codec());
  if (!codec.ok()) return Damaged(codec.status().message());
  result.codec = *codec;
  result.tokens = value.tokens();
  result.steps = value.steps();
  result.loss = value.loss();
  result.lr_sum = value.lr_sum();
  result.data_end = value.data_end();
  return result;
}

absl::StatusOr<Fact> From(const v1::RunCreatedFact& in) {
  if (in.format() > kNewestRecordFormat) {
    return absl::FailedPreconditionError(
        absl::StrCat("the state was written in format ", in.format(),
                     " by a newer version; this one knows formats up to ",
                     kNewestRecordFormat, ": start the newer version"));
  }
  RunCreated fact;
  fact.run = in.run();
  fact.lineage = in.lineage();
  ASSIGN_OR_RETURN(fact.settings_digest, ToDigest(in.settings_digest()));
  ASSIGN_OR_RETURN(fact.layout_digest, ToDigest(in.layout_digest()));
  for (const v1::RunCreatedFact::Fragment& fragment : in.fragments()) {
    RunCreated::Fragment& added = fact.fragments.emplace_back();
    ASSIGN_OR_RETURN(added.digest, ToDigest(fragment.digest()));
    ASSIGN_OR_RETURN(added.theta_image, ToFile(fragment.theta_image()));
    ASSIGN_OR_RETURN(added.momentum_image, ToFile(fragment.momentum_image()));
    for (const v1::RunCreatedFact::Tensor& tensor : fragment.tensors()) {
      added.tensors.push_back(
          {static_cast<int64_t>(tensor.elements()), tensor.embedding()});
    }
  }
  return fact;
}

absl::StatusOr<Fact> From(const v1::EpochStartedFact& in) {
  return EpochStarted{in.epoch(), in.boot_nonce()};
}

absl::StatusOr<Fact> From(const v1::WorkerJoinedFact& in) {
  return WorkerJoined{in.worker(), in.session(), in.attempt(),
                      in.fresh(),  in.peer(),    in.previous_session()};
}

absl::StatusOr<Fact> From(const v1::WorkerReturnedFact& in) {
  return WorkerReturned{in.worker()};
}

absl::StatusOr<Fact> From(const v1::WorkerDepartedFact& in) {
  WorkerDeparted fact;
  fact.worker = in.worker();
  fact.reason = in.reason();
  switch (in.departure()) {
    case v1::DEPARTURE_KIND_LEFT:
      fact.departure = Departure::kLeft;
      return fact;
    case v1::DEPARTURE_KIND_LOST:
      fact.departure = Departure::kLost;
      return fact;
    case v1::DEPARTURE_KIND_EVICTED:
      fact.departure = Departure::kEvicted;
      return fact;
    case v1::DEPARTURE_KIND_REFUSED:
      fact.departure = Departure::kRefused;
      return fact;
    default:
      return Damaged(absl::StrCat("departure ",
                                  static_cast<int>(in.departure()),
                                  " is none of left, lost, evicted, refused"));
  }
}

absl::StatusOr<Fact> From(const v1::DrainRequestedFact& in) {
  return DrainRequested{in.worker()};
}

absl::StatusOr<Fact> From(const v1::RoundOpenedFact& in) {
  RoundOpened fact;
  fact.fragment = in.fragment();
  fact.round = in.round();
  fact.base_version = in.base_version();
  for (const v1::StoredLease& lease : in.leases()) {
    fact.leases.push_back(ToLease(lease));
  }
  for (const v1::RoundOpenedFact::Skipped& skipped : in.skipped()) {
    fact.skipped.push_back({skipped.worker(), skipped.reason()});
  }
  ASSIGN_OR_RETURN(fact.deadline, ToDuration(in.deadline_ms()));
  fact.reason = in.reason();
  return fact;
}

absl::StatusOr<Fact> From(const v1::RoundExtendedFact& in) {
  RoundExtended fact;
  fact.fragment = in.fragment();
  fact.round = in.round();
  for (const v1::StoredLease& lease : in.added()) {
    fact.added.push_back(ToLease(lease));
  }
  fact.reason = in.reason();
  return fact;
}

absl::StatusOr<Fact> From(const v1::LeaseAddedFact& in) {
  return LeaseAdded{in.fragment(), in.round(), ToLease(in.lease()),
                    in.reason()};
}

absl::StatusOr<Fact> From(const v1::UpdateCommittedFact& in) {
  UpdateCommitted fact;
  fact.fragment = in.fragment();
  fact.round = in.round();
  fact.worker = in.worker();
  ASSIGN_OR_RETURN(fact.value, ToValue(in.value()));
  fact.max_abs = in.max_abs();
  fact.norm = in.norm();
  return fact;
}

absl::StatusOr<Fact> From(const v1::UpdateRefusedFact& in) {
  UpdateRefused fact;
  fact.fragment = in.fragment();
  fact.round = in.round();
  fact.worker = in.worker();
  ASSIGN_OR_RETURN(fact.digest, ToDigest(in.digest()));
  fact.reason = in.reason();
  ASSIGN_OR_RETURN(fact.screen, OneOf(kScreens, in.screen(), "screen"));
  fact.figure = in.figure();
  fact.limit = in.limit();
  return fact;
}

absl::StatusOr<Fact> From(const v1::RoundClosedFact& in) {
  RoundClosed fact;
  fact.fragment = in.fragment();
  fact.round = in.round();
  for (const v1::RoundClosedFact::Member& member : in.members()) {
    RoundMember& added = fact.members.emplace_back();
    added.worker = member.worker();
    added.weight = member.weight();
    ASSIGN_OR_RETURN(added.digest, ToDigest(member.digest()));
    added.tokens = member.tokens();
    added.norm_per_lr = member.norm_per_lr();
  }
  fact.missing.assign(in.missing().begin(), in.missing().end());
  fact.loss = in.loss();
  ASSIGN_OR_RETURN(fact.duration, ToDuration(in.duration_ms()));
  fact.outer_lr = in.outer_lr();
  fact.outer_momentum = in.outer_momentum();
  fact.nesterov = in.nesterov();
  fact.reason = in.reason();
  ASSIGN_OR_RETURN(fact.merge,
                   OneOf(kMergeRules, in.merge_rule(), "merge rule"));
  return fact;
}

absl::StatusOr<Fact> From(const v1::VersionPublishedFact& in) {
  VersionPublished fact;
  fact.fragment = in.fragment();
  fact.round = in.round();
  fact.version = in.version();
  ASSIGN_OR_RETURN(fact.digest, ToDigest(in.digest()));
  ASSIGN_OR_RETURN(fact.blob, ToFile(in.blob()));
  ASSIGN_OR_RETURN(fact.theta_image, ToFile(in.theta_image()));
  ASSIGN_OR_RETURN(fact.momentum_image, ToFile(in.momentum_image()));
  fact.folded_tokens = in.folded_tokens();
  return fact;
}

absl::StatusOr<Fact> From(const v1::EvalOpenedFact& in) {
  EvalOpened fact;
  fact.version = in.version();
  fact.versions.assign(in.versions().begin(), in.versions().end());
  for (const v1::EvalOpenedFact::Slice& slice : in.slices()) {
    fact.slices.push_back(
        {slice.worker(), slice.first_window(), slice.windows()});
  }
  return fact;
}

absl::StatusOr<Fact> From(const v1::EvalReassignedFact& in) {
  return EvalReassigned{in.version(), in.slice(), in.worker(), in.reason()};
}

absl::StatusOr<Fact> From(const v1::EvalReportedFact& in) {
  return EvalReported{in.version(), in.slice(), in.worker(), in.loss_sum(),
                      in.tokens()};
}

absl::StatusOr<Fact> From(const v1::EvalAbandonedFact& in) {
  return EvalAbandoned{in.version(), in.reason()};
}

absl::StatusOr<Fact> From(const v1::PauseChangedFact& in) {
  return PauseChanged{in.paused(), in.reason(), in.guard()};
}

absl::StatusOr<Fact> From(const v1::LineageStartedFact& in) {
  LineageStarted fact;
  fact.lineage = in.lineage();
  for (const v1::LineageStartedFact::Fragment& fragment : in.fragments()) {
    LineageStarted::Fragment& added = fact.fragments.emplace_back();
    added.version = fragment.version();
    ASSIGN_OR_RETURN(added.digest, ToDigest(fragment.digest()));
    ASSIGN_OR_RETURN(added.theta_image, ToFile(fragment.theta_image()));
    ASSIGN_OR_RETURN(added.momentum_image, ToFile(fragment.momentum_image()));
    added.folded_tokens = fragment.folded_tokens();
  }
  fact.folded_tokens = in.folded_tokens();
  fact.reason = in.reason();
  return fact;
}

absl::StatusOr<Fact> From(const v1::StopRequestedFact& in) {
  return StopRequested{in.after_round(), in.reason()};
}

absl::StatusOr<Fact> From(const v1::RunFinishedFact& in) {
  return RunFinished{in.reason()};
}

absl::StatusOr<Fact> From(const v1::SettingsChangedFact& in) {
  SettingsChanged fact;
  fact.revision = in.revision();
  for (const v1::SettingsChangedFact::Change& change : in.changes()) {
    fact.changes.push_back(
        {change.key(), change.before(), change.after(), change.at_once()});
  }
  fact.from_round = in.from_round();
  fact.reopens = in.reopens();
  ASSIGN_OR_RETURN(fact.settings_digest, ToDigest(in.settings_digest()));
  fact.by = in.by();
  fact.reason = in.reason();
  return fact;
}

absl::StatusOr<Fact> FromRecord(const v1::Record& record) {
  switch (record.fact_case()) {
    case v1::Record::kRunCreated:
      return From(record.run_created());
    case v1::Record::kEpochStarted:
      return From(record.epoch_started());
    case v1::Record::kWorkerJoined:
      return From(record.worker_joined());
    case v1::Record::kWorkerReturned:
      return From(record.worker_returned());
    case v1::Record::kWorkerDeparted:
      return From(record.worker_departed());
    case v1::Record::kDrainRequested:
      return From(record.drain_requested());
    case v1::Record::kRoundOpened:
      return From(record.round_opened());
    case v1::Record::kRoundExtended:
      return From(record.round_extended());
    case v1::Record::kUpdateCommitted:
      return From(record.update_committed());
    case v1::Record::kUpdateRefused:
      return From(record.update_refused());
    case v1::Record::kRoundClosed:
      return From(record.round_closed());
    case v1::Record::kVersionPublished:
      return From(record.version_published());
    case v1::Record::kEvalOpened:
      return From(record.eval_opened());
    case v1::Record::kEvalReassigned:
      return From(record.eval_reassigned());
    case v1::Record::kEvalReported:
      return From(record.eval_reported());
    case v1::Record::kEvalAbandoned:
      return From(record.eval_abandoned());
    case v1::Record::kPauseChanged:
      return From(record.pause_changed());
    case v1::Record::kStopRequested:
      return From(record.stop_requested());
    case v1::Record::kRunFinished:
      return From(record.run_finished());
    case v1::Record::kLineageStarted:
      return From(record.lineage_started());
    case v1::Record::kSettingsChanged:
      return From(record.settings_changed());
    case v1::Record::kLeaseAdded:
      return From(record.lease_added());
    case v1::Record::FACT_NOT_SET:
      break;
  }
  return Damaged("the record holds no fact");
}

}  // namespace

absl::StatusOr<Fact> DecodeFact(uint32_t type, absl::string_view payload) {
  const std::string name = FactTypeName(type);
  if (name.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "record type ", type,
        " is unknown to this version: it was written by a newer one, start "
        "that"));
  }
  v1::Record record;
  if (!record.ParseFromArray(payload.data(),
                             static_cast<int>(payload.size()))) {
    return Damaged(absl::StrCat("a ", name, " record of ", payload.size(),
                                " bytes cannot be parsed"));
  }
  if (static_cast<uint32_t>(record.fact_case()) != type) {
    return Damaged(absl::StrCat("a ", name, " record holds a fact of type ",
                                static_cast<uint32_t>(record.fact_case())));
  }
  absl::StatusOr<Fact> fact = FromRecord(record);
  if (!fact.ok()) {
    return WithContext(fact.status(), absl::StrCat(name, " record"));
  }
  return fact;
}

}  // namespace diloco

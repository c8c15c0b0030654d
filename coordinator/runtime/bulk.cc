// Bulk plane of the coordinator: uploads into spools, files by digest.

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "coordinator/aggregate/fold.h"
#include "coordinator/runtime/coordinator_impl.h"

namespace diloco {
namespace {

// Another call for the same key works on it; nothing waits for that.
constexpr char kBusy[] = "another call for this update is under way: ask again";

absl::Status NotOpen(const UploadKey& key) {
  return absl::AbortedError(
      absl::StrCat("no upload is open for fragment ", key.fragment, " round ",
                   key.round, " of worker ", key.worker, ": begin it again"));
}

FinishOutcome OutcomeOf(const UploadVerdict& verdict) {
  FinishOutcome outcome;
  outcome.kind = verdict.kind;
  outcome.reason = verdict.reason;
  if (verdict.committed.has_value()) {
    outcome.sequence = verdict.committed->sequence;
  }
  return outcome;
}

}  // namespace

absl::StatusOr<std::string> CoordinatorImpl::AskCaller(
    const std::string& session, const Fencing& fencing) {
  RETURN_IF_ERROR(sequencer_->Stalled());
  return Ask<std::string>([&, this] { return Caller(session, fencing); });
}

absl::StatusOr<std::optional<UploadVerdict>> CoordinatorImpl::AskDecided(
    const UploadKey& key, const Digest& digest) {
  return Ask<std::optional<UploadVerdict>>([&, this] {
    return DecidedUpload(sequencer_->state(), key.worker, key.fragment,
                         key.round, digest);
  });
}

absl::StatusOr<BeginOutcome> CoordinatorImpl::BeginUpload(
    const std::string& session, const Fencing& fencing, uint32_t fragment,
    uint64_t round, const UpdateValue& value) {
  if (fragment >= options_.layout.fragments.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("fragment ", fragment, " does not exist; the run has ",
                     options_.layout.fragments.size()));
  }
  const int64_t elements = options_.layout.fragments[fragment].elements;
  ASSIGN_OR_RETURN(const std::string worker, AskCaller(session, fencing));
  BeginOutcome outcome;
  const std::unique_ptr<UploadTable::Turn> turn =
      uploads_.TryTurn({fragment, round, worker});
  if (turn == nullptr) {
    outcome.queued = true;
    outcome.reason = kBusy;
    return outcome;
  }
  ASSIGN_OR_RETURN(const UploadVerdict verdict, Ask<UploadVerdict>([&, this] {
                     return JudgeUpload(sequencer_->policy(),
                                        sequencer_->state(), worker, fragment,
                                        round, value,
                                        PartFileBytes(value.codec, elements));
                   }));
  outcome.kind = verdict.kind;
  outcome.reason = verdict.reason;
  if (verdict.kind == UploadVerdict::Kind::kAccepted) {
    outcome.offset = value.bytes;
    outcome.sequence = verdict.committed->sequence;
    metrics_.duplicates->Increment();
  }
  if (verdict.kind != UploadVerdict::Kind::kSend) return outcome;
  ASSIGN_OR_RETURN(const std::shared_ptr<ActiveUpload> upload,
                   uploads_.Open(*turn, value,
                                 {value.codec, fragment, elements,
                                  kMaxFoldMagnitude, &options_.layout}));
  if (upload == nullptr) {
    outcome.queued = true;
    outcome.reason = "too many uploads at once: ask again";
    return outcome;
  }
  outcome.offset = upload->offset();
  return outcome;
}

absl::StatusOr<std::shared_ptr<Coordinator::Upload>>
CoordinatorImpl::OpenUpload(const std::string& session, const Fencing& fencing,
                            uint32_t fragment, uint64_t round) {
  ASSIGN_OR_RETURN(std::string worker, AskCaller(session, fencing));
  const UploadKey key{fragment, round, std::move(worker)};
  std::shared_ptr<ActiveUpload> upload = uploads_.Find(key);
  if (upload == nullptr) return NotOpen(key);
  return std::shared_ptr<Upload>(std::move(upload));
}

absl::StatusOr<FinishOutcome> CoordinatorImpl::FinishUpload(
    const std::string& session, const Fencing& fencing, uint32_t fragment,
    uint64_t round, const Digest& digest) {
  ASSIGN_OR_RETURN(const std::string worker, AskCaller(session, fencing));
  const UploadKey key{fragment, round, worker};
  const std::unique_ptr<UploadTable::Turn> turn = uploads_.TryTurn(key);
  if (turn == nullptr) return absl::UnavailableError(kBusy);
  const std::shared_ptr<ActiveUpload> upload = uploads_.Find(key);
  if (upload == nullptr) {
    ASSIGN_OR_RETURN(const std::optional<UploadVerdict> decided,
                     AskDecided(key, digest));
    if (!decided.has_value()) return NotOpen(key);
    if (decided->kind == UploadVerdict::Kind::kAccepted) {
      metrics_.duplicates->Increment();
    }
    return OutcomeOf(*decided);
  }
  if (upload->value().digest != digest) {
    return absl::AlreadyExistsError(absl::StrCat(
        "round ", round, " of worker ", worker, " was begun with digest ",
        upload->value().digest.Short(), ", finish names ", digest.Short()));
  }
  const absl::StatusOr<UploadSpool::Verified> verified = upload->Finish();
  if (absl::IsInvalidArgument(verified.status())) {
    return Refuse(*turn, upload->value().digest,
                  std::string(verified.status().message()));
  }
  if (upload->sync_failed()) Fatal(verified.status());
  RETURN_IF_ERROR(verified.status());
  const absl::Status status =
      SubmitAndWait(UpdateVerifiedEvent{worker, fragment, round,
                                        upload->value(), verified->max_abs,
                                        verified->norm,
                                        absl::ToDoubleSeconds(upload->age())})
          .first;
  uploads_.Remove(*turn);
  if (absl::IsFailedPrecondition(status)) {
    FinishOutcome outcome;
    outcome.kind = UploadVerdict::Kind::kLate;
    outcome.reason = std::string(status.message());
    return outcome;
  }
  RETURN_IF_ERROR(status);
  ASSIGN_OR_RETURN(const std::optional<UploadVerdict> decided,
                   AskDecided(key, digest));
  if (!decided.has_value()) return NotOpen(key);
  return OutcomeOf(*decided);
}

// Complete or not, its content can never be used: the key is used up.
absl::StatusOr<FinishOutcome> CoordinatorImpl::Refuse(
    const UploadTable::Turn& turn, const Digest& digest,
    const std::string& reason) {
  const UploadKey& key = turn.key();
  const absl::Status kept =
      spools_.Quarantine(key.fragment, key.round, key.worker, digest);
  if (!kept.ok()) {
    DILOCO_LOG(WARNING) << "a refused update is not kept worker=" << key.worker
                        << " error=\"" << kept.message() << "\"";
  }
  const absl::Status status =
      SubmitAndWait(UpdateUnusableEvent{key.worker, key.fragment, key.round,
                                        digest, reason})
          .first;
  uploads_.Remove(turn);
  RETURN_IF_ERROR(status);
  FinishOutcome outcome;
  outcome.kind = UploadVerdict::Kind::kRefused;
  outcome.reason = reason;
  return outcome;
}

absl::StatusOr<ServedFile> CoordinatorImpl::FindFile(const Digest& digest) {
  if (const auto it = served_files_.find(digest); it != served_files_.end()) {
    return it->second;
  }
  if (const auto found =
          versions_.FindAndPin(digest, options_.clock->Now() + kReaderPin);
      found.has_value()) {
    return ServedFile{found->path, found->bytes};
  }
  return absl::NotFoundError(
      absl::StrCat("no file has the digest ", digest.Short(),
                   ": it is no longer kept; resolve again"));
}

void CoordinatorImpl::CountBulkBytes(uint64_t received, uint64_t sent) {
  bulk_received_ += received;
  bulk_sent_ += sent;
  metrics_.received_bytes->Increment(static_cast<double>(received));
  metrics_.sent_bytes->Increment(static_cast<double>(sent));
}

}  // namespace diloco

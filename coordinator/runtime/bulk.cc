// Bulk plane of the coordinator: uploads into spools, files by digest.

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "coordinator/aggregate/fold.h"
#include "coordinator/runtime/coordinator_impl.h"

namespace diloco {
namespace {

struct Judged {
  std::string worker;
  UploadVerdict verdict;
};

}  // namespace

absl::StatusOr<BeginOutcome> CoordinatorImpl::BeginUpload(
    const std::string& session, const Fencing& fencing, uint32_t fragment,
    uint64_t round, const UpdateValue& value) {
  if (fragment >= options_.layout.fragments.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("fragment ", fragment, " does not exist; the run has ",
                     options_.layout.fragments.size()));
  }
  const int64_t elements = options_.layout.fragments[fragment].elements;
  ASSIGN_OR_RETURN(
      const Judged judged, Ask<Judged>([&, this]() -> absl::StatusOr<Judged> {
        Judged out;
        ASSIGN_OR_RETURN(out.worker, Caller(session, fencing));
        ASSIGN_OR_RETURN(out.verdict,
                         JudgeUpload(sequencer_->policy(), sequencer_->state(),
                                     out.worker, fragment, round, value,
                                     PartFileBytes(value.codec, elements)));
        return out;
      }));
  BeginOutcome outcome;
  outcome.kind = judged.verdict.kind;
  outcome.reason = judged.verdict.reason;
  if (outcome.kind == UploadVerdict::Kind::kAccepted) {
    outcome.offset = value.bytes;
    metrics_.duplicates->Increment();
  }
  if (outcome.kind != UploadVerdict::Kind::kSend) return outcome;
  ASSIGN_OR_RETURN(const std::shared_ptr<ActiveUpload> upload,
                   uploads_.Open({fragment, round, judged.worker}, value,
                                 {value.codec, fragment, elements,
                                  kMaxFoldMagnitude, &options_.layout}));
  if (upload == nullptr) {
    outcome.queued = true;
    return outcome;
  }
  outcome.offset = upload->offset();
  return outcome;
}

absl::StatusOr<std::shared_ptr<Coordinator::Upload>>
CoordinatorImpl::OpenUpload(const std::string& session, const Fencing& fencing,
                            uint32_t fragment, uint64_t round) {
  ASSIGN_OR_RETURN(const std::string worker, Ask<std::string>([&, this] {
                     return Caller(session, fencing);
                   }));
  std::shared_ptr<ActiveUpload> upload =
      uploads_.Find({fragment, round, worker});
  if (upload == nullptr) {
    return absl::AbortedError(
        absl::StrCat("no upload is open for fragment ", fragment, " round ",
                     round, " of worker ", worker, ": begin it again"));
  }
  return std::shared_ptr<Upload>(std::move(upload));
}

absl::StatusOr<FinishOutcome> CoordinatorImpl::FinishUpload(
    const std::string& session, const Fencing& fencing, uint32_t fragment,
    uint64_t round, const Digest& digest) {
  ASSIGN_OR_RETURN(const std::string worker, Ask<std::string>([&, this] {
                     return Caller(session, fencing);
                   }));
  const UploadKey key{fragment, round, worker};
  const std::shared_ptr<ActiveUpload> upload = uploads_.Find(key);
  FinishOutcome outcome;
  if (upload == nullptr) {
    return absl::AbortedError(
        absl::StrCat("no upload is open for fragment ", fragment, " round ",
                     round, " of worker ", worker,
                     ": begin it again, an accepted one says so there"));
  }
  if (upload->value().digest != digest) {
    return absl::AlreadyExistsError(absl::StrCat(
        "round ", round, " of worker ", worker, " was begun with digest ",
        upload->value().digest.Short(), ", finish names ", digest.Short()));
  }
  const absl::StatusOr<UploadSpool::Verified> verified = upload->Finish();
  if (absl::IsInvalidArgument(verified.status())) {
    // Complete or not, its content can never be used: the key is used up.
    const absl::Status kept = spools_.Quarantine(fragment, round, worker);
    if (!kept.ok()) {
      DILOCO_LOG(WARNING) << "a refused update is not kept worker=" << worker
                          << " error=\"" << kept.message() << "\"";
    }
    const std::string reason(verified.status().message());
    const auto [status, sequence] = SubmitAndWait(UpdateUnusableEvent{
        worker, fragment, round, upload->value().digest, reason});
    uploads_.Remove(key);
    RETURN_IF_ERROR(status);
    outcome.kind = UploadVerdict::Kind::kRefused;
    outcome.sequence = sequence;
    outcome.reason = reason;
    return outcome;
  }
  RETURN_IF_ERROR(verified.status());
  const auto [status, sequence] = SubmitAndWait(UpdateVerifiedEvent{
      worker, fragment, round, upload->value(), verified->max_abs,
      verified->norm, absl::ToDoubleSeconds(upload->age())});
  uploads_.Remove(key);
  if (absl::IsFailedPrecondition(status)) {
    outcome.kind = UploadVerdict::Kind::kLate;
    outcome.reason = std::string(status.message());
    return outcome;
  }
  RETURN_IF_ERROR(status);
  outcome.kind = UploadVerdict::Kind::kAccepted;
  outcome.sequence = sequence;
  return outcome;
}

absl::StatusOr<ServedFile> CoordinatorImpl::FindFile(const Digest& digest) {
  if (const auto it = served_files_.find(digest); it != served_files_.end()) {
    return it->second;
  }
  if (const auto found = versions_.Find(digest); found.has_value()) {
    return ServedFile{found->path, found->bytes};
  }
  return absl::NotFoundError(
      absl::StrCat("no file has the digest ", digest.Short(),
                   ": it is no longer kept; resolve again"));
}

void CoordinatorImpl::CountBulkBytes(const std::string&, uint64_t received,
                                     uint64_t sent) {
  bulk_received_ += received;
  bulk_sent_ += sent;
  metrics_.received_bytes->Increment(static_cast<double>(received));
  metrics_.sent_bytes->Increment(static_cast<double>(sent));
}

}  // namespace diloco

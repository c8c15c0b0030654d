#include "coordinator/runtime/upload_table.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace diloco {
namespace {

// An upload without progress for so long does not hold a slot.
constexpr absl::Duration kIdle = absl::Seconds(30);

}  // namespace

uint64_t ActiveUpload::offset() const {
  MutexLock lock(&mu_);
  return spool_ == nullptr ? closed_at_ : spool_->offset();
}

absl::Status ActiveUpload::Check() const {
  if (!cancelled_ && spool_ != nullptr) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat("the upload of worker ", key_.worker,
                                           " for round ", key_.round,
                                           " has ended: begin it again"));
}

absl::Status ActiveUpload::Judge(const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) alarm_->Raise(status);
  if (!absl::IsInternal(status)) return status;
  broken_ = true;
  sync_failed_ = spool_->sync_failed();
  DILOCO_LOG(ERROR) << "an update cannot be stored and will be sent again "
                       "from its beginning; look at the disk worker="
                    << key_.worker << " round=" << key_.round << " error=\""
                    << status.message() << "\"";
  // Not ABORTED: a sender that is refused often gives up, and this is not its
  // fault.
  return absl::UnavailableError(
      absl::StrCat(status.message(), ": begin it again, from offset 0"));
}

absl::Status ActiveUpload::Write(uint64_t offset, absl::string_view bytes) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(Check());
  last_write_ns_ = absl::ToInt64Nanoseconds(clock_->Now());
  return Judge(spool_->Write(offset, bytes));
}

absl::StatusOr<UploadSpool::Verified> ActiveUpload::Finish() {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(Check());
  absl::StatusOr<UploadSpool::Verified> verified = spool_->Finish();
  RETURN_IF_ERROR(Judge(verified.status()));
  alarm_->Clear();
  return verified;
}

void ActiveUpload::Close() {
  Cancel();
  MutexLock lock(&mu_);
  if (spool_ == nullptr) return;
  closed_at_ = spool_->offset();
  spool_.reset();
}

UploadTable::Turn::~Turn() {
  MutexLock lock(&table_->mu_);
  table_->turns_.erase(key_);
}

std::unique_ptr<UploadTable::Turn> UploadTable::TryTurn(const UploadKey& key) {
  MutexLock lock(&mu_);
  if (!turns_.insert(key).second) return nullptr;
  return std::make_unique<Turn>(this, key);
}

std::shared_ptr<ActiveUpload> UploadTable::Find(const UploadKey& key) {
  MutexLock lock(&mu_);
  const auto it = uploads_.find(key);
  return it == uploads_.end() ? nullptr : it->second;
}

bool UploadTable::IsClosed(const UploadKey& key) const {
  const auto closed = closed_.find(key.fragment);
  return closed != closed_.end() && key.round <= closed->second;
}

int UploadTable::CountOthers(const UploadKey& key) const {
  int count = static_cast<int>(opening_.size());
  for (const auto& [other, upload] : uploads_) {
    if (other != key && upload->idle() < kIdle) ++count;
  }
  return count;
}

absl::StatusOr<std::unique_ptr<UploadSpool>> UploadTable::OpenSpool(
    const UploadKey& key, const UpdateValue& value, PartScreen::Expect expect,
    std::shared_ptr<ActiveUpload> old) {
  if (old != nullptr) {
    // One writer per file.
    old->Close();
    if (old->broken()) {
      RETURN_IF_ERROR(spools_->Discard(key.fragment, key.round, key.worker,
                                       old->value().digest));
    }
  }
  return spools_->Open(key.fragment, key.round, key.worker, value, expect);
}

absl::StatusOr<std::shared_ptr<ActiveUpload>> UploadTable::Open(
    const Turn& turn, const UpdateValue& value, PartScreen::Expect expect) {
  const UploadKey& key = turn.key();
  std::shared_ptr<ActiveUpload> old;
  {
    MutexLock lock(&mu_);
    const auto found = uploads_.find(key);
    if (found != uploads_.end()) {
      old = found->second;
      if (old->value() == value && !old->broken()) return old;
    }
    if (CountOthers(key) >= max_parallel_) {
      return std::shared_ptr<ActiveUpload>();
    }
    opening_.insert(key);
  }
  absl::StatusOr<std::unique_ptr<UploadSpool>> spool =
      OpenSpool(key, value, expect, std::move(old));
  // All but what the caller asked wrongly is the disk's: no space, or a
  // directory that is read-only or gone.
  if (!spool.ok() && !absl::IsInvalidArgument(spool.status())) {
    alarm_->Raise(spool.status());
  }
  std::shared_ptr<ActiveUpload> upload;
  if (spool.ok()) {
    upload = std::make_shared<ActiveUpload>(key, value, *std::move(spool),
                                            clock_, alarm_);
  }
  MutexLock lock(&mu_);
  opening_.erase(key);
  uploads_.erase(key);
  RETURN_IF_ERROR(spool.status());
  if (IsClosed(key)) {
    return absl::CancelledError(absl::StrCat(
        "round ", key.round, " has closed meanwhile: begin again"));
  }
  uploads_[key] = upload;
  return upload;
}

void UploadTable::Remove(const Turn& turn) {
  std::shared_ptr<ActiveUpload> upload;
  MutexLock lock(&mu_);
  const auto it = uploads_.find(turn.key());
  if (it == uploads_.end()) return;
  upload = std::move(it->second);
  uploads_.erase(it);
}

void UploadTable::CancelRound(uint32_t fragment, uint64_t round) {
  // Their files are closed after mu_ is released.
  std::vector<std::shared_ptr<ActiveUpload>> ended;
  MutexLock lock(&mu_);
  uint64_t& closed = closed_[fragment];
  if (round > closed) closed = round;
  for (auto it = uploads_.begin(); it != uploads_.end();) {
    if (it->first.fragment == fragment && IsClosed(it->first)) {
      it->second->Cancel();
      ended.push_back(std::move(it->second));
      it = uploads_.erase(it);
    } else {
      ++it;
    }
  }
}

}  // namespace diloco

#include "coordinator/runtime/upload_table.h"

#include <utility>

#include "common/base/status_macros.h"

namespace diloco {
namespace {

// An upload without progress for so long does not hold a slot.
constexpr absl::Duration kIdle = absl::Seconds(30);

}  // namespace

uint64_t ActiveUpload::offset() const {
  MutexLock lock(&mu_);
  return spool_->offset();
}

absl::Status ActiveUpload::Write(uint64_t offset, absl::string_view bytes) {
  if (cancelled_) {
    return absl::CancelledError("the round of this upload has closed");
  }
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(verdict_);
  last_write_ = clock_->Now();
  const absl::Status status = spool_->Write(offset, bytes);
  alarm_->Note(status);
  if (absl::IsInvalidArgument(status)) verdict_ = status;
  return status;
}

absl::StatusOr<UploadSpool::Verified> ActiveUpload::Finish() {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(verdict_);
  absl::StatusOr<UploadSpool::Verified> verified = spool_->Finish();
  alarm_->Note(verified.status());
  if (verified.ok()) alarm_->Clear();
  if (absl::IsInvalidArgument(verified.status())) verdict_ = verified.status();
  return verified;
}

absl::Status ActiveUpload::verdict() const {
  MutexLock lock(&mu_);
  return verdict_;
}

absl::Duration ActiveUpload::idle() const {
  MutexLock lock(&mu_);
  return clock_->Now() - last_write_;
}

std::shared_ptr<ActiveUpload> UploadTable::Find(const UploadKey& key) {
  MutexLock lock(&mu_);
  const auto it = uploads_.find(key);
  return it == uploads_.end() ? nullptr : it->second;
}

absl::StatusOr<std::shared_ptr<ActiveUpload>> UploadTable::Open(
    const UploadKey& key, const UpdateValue& value, PartScreen::Expect expect) {
  MutexLock opening(&open_mu_);
  {
    MutexLock lock(&mu_);
    int active = 0;
    for (const auto& [other, upload] : uploads_) {
      if (other == key) {
        if (upload->value() == value) return upload;
        upload->Cancel();
      } else if (upload->idle() < kIdle) {
        ++active;
      }
    }
    uploads_.erase(key);
    if (active >= max_parallel_) return std::shared_ptr<ActiveUpload>();
  }
  absl::StatusOr<std::unique_ptr<UploadSpool>> spool =
      spools_->Open(key.fragment, key.round, key.worker, value, expect);
  alarm_->Note(spool.status());
  RETURN_IF_ERROR(spool.status());
  auto upload = std::make_shared<ActiveUpload>(key, value, *std::move(spool),
                                               clock_, alarm_);
  MutexLock lock(&mu_);
  uploads_[key] = upload;
  return upload;
}

void UploadTable::Remove(const UploadKey& key) {
  MutexLock lock(&mu_);
  uploads_.erase(key);
}

void UploadTable::CancelRound(uint32_t fragment, uint64_t round) {
  MutexLock lock(&mu_);
  for (auto it = uploads_.begin(); it != uploads_.end();) {
    if (it->first.fragment == fragment && it->first.round <= round) {
      it->second->Cancel();
      it = uploads_.erase(it);
    } else {
      ++it;
    }
  }
}

}  // namespace diloco

#include "worker/transport/fencing_guard.h"

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/rpc/message_codec.h"

namespace diloco {

Fencing FencingGuard::current() const {
  MutexLock lock(&mu_);
  return current_;
}

absl::Status FencingGuard::verdict() const {
  MutexLock lock(&mu_);
  return verdict_;
}

void FencingGuard::Remember(const Fencing& kept) {
  MutexLock lock(&mu_);
  if (current_.lineage.empty() ||
      (kept.lineage == current_.lineage && kept.epoch > current_.epoch)) {
    current_ = kept;
  }
}

absl::Status FencingGuard::Observe(const Fencing& asked, const Fencing& reply) {
  MutexLock lock(&mu_);
  if (verdict_.ok() && reply.lineage != current_.lineage &&
      !current_.lineage.empty()) {
    if (asked.lineage != current_.lineage) {
      return absl::UnavailableError("the reply is older than the last join");
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "the run continues in another lineage (", DescribeFencing(reply),
        "; joined was ", DescribeFencing(current_), "): join again"));
  }
  return Judge(asked, reply);
}

absl::Status FencingGuard::ObserveJoin(const Fencing& asked,
                                       const Fencing& reply) {
  MutexLock lock(&mu_);
  if (verdict_.ok() && reply.lineage != current_.lineage) current_ = Fencing{};
  return Judge(asked, reply);
}

absl::Status FencingGuard::Judge(const Fencing& asked, const Fencing& reply) {
  if (!verdict_.ok()) return verdict_;
  if (reply.lineage.empty()) {
    return absl::InvalidArgumentError("the reply carries no fencing");
  }
  if (current_.lineage.empty() || reply.epoch > current_.epoch) {
    current_ = reply;
    return absl::OkStatus();
  }
  if (reply == current_) return absl::OkStatus();
  if (reply.epoch < current_.epoch &&
      (asked.lineage != reply.lineage || reply.epoch >= asked.epoch)) {
    return absl::UnavailableError(
        "the reply was overtaken by a restart of the coordinator");
  }
  verdict_ = absl::FailedPreconditionError(
      absl::StrCat(reply.epoch < current_.epoch
                       ? "this coordinator is older than one seen before"
                       : "two coordinators run on one state",
                   " (answered ", DescribeFencing(reply), ", seen ",
                   DescribeFencing(current_),
                   "): stop the wrong one, or restore it as a new lineage"));
  DILOCO_LOG(ERROR) << "fencing " << verdict_.message();
  return verdict_;
}

}  // namespace diloco

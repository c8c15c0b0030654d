#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/core/machine.h"

namespace diloco {
namespace {

using Kind = UploadVerdict::Kind;

absl::Status CheckValue(const Policy& policy, const FragmentState& fragment,
                        uint64_t round, const UpdateValue& value,
                        uint64_t expected_bytes) {
  if (value.base_version != fragment.open->base_version) {
    return absl::InvalidArgumentError(absl::StrCat(
        "update for round ", round, " is based on version ", value.base_version,
        ", but the round's base is version ", fragment.open->base_version));
  }
  if (value.base_digest != fragment.digest) {
    return absl::InvalidArgumentError(absl::StrCat(
        "update for round ", round, " is based on version ", value.base_version,
        " with digest ", value.base_digest.Short(),
        ", but that version's digest is ", fragment.digest.Short(),
        ": this worker's copy is damaged, download it again"));
  }
  if (value.codec != policy.codec_up) {
    return absl::InvalidArgumentError(absl::StrCat(
        "update has codec ", CodecName(value.codec),
        ", but the run's sync.up is ", CodecName(policy.codec_up)));
  }
  if (value.bytes != expected_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("update has ", value.bytes,
                     " bytes, but one of this fragment has ", expected_bytes));
  }
  if (value.tokens == 0 || value.steps == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("update of ", value.steps, " steps and ", value.tokens,
                     " tokens: there is nothing in it"));
  }
  if (!std::isfinite(value.loss)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "update's mean loss is ", value.loss, ", which is no finite number"));
  }
  return absl::OkStatus();
}

// An update that was committed under the key: the same one again, or another?
absl::StatusOr<UploadVerdict> JudgeRepeat(const UpdateCommitted& committed,
                                          const UpdateValue& value) {
  if (committed.value == value) {
    return UploadVerdict{Kind::kAccepted, "accepted before", committed};
  }
  return absl::AlreadyExistsError(absl::StrCat(
      "worker ", committed.worker, " already delivered another update for ",
      "fragment ", committed.fragment, " round ", committed.round,
      ": accepted was digest ", committed.value.digest.Short(), " (",
      committed.value.tokens, " tokens), now comes ", value.digest.Short(),
      " (", value.tokens, " tokens); the first stays valid"));
}

UploadVerdict Late(const Policy& policy, uint64_t round, uint64_t newest,
                   const UpdateValue& value) {
  std::string reason =
      absl::StrCat("round ", round, " has closed, the newest is ", newest);
  if (policy.late == LatePolicy::kCarry) {
    absl::StrAppend(&reason,
                    ": apply the new version to anchor and local values and "
                    "train on (sync.late: carry)");
  } else {
    absl::StrAppend(&reason, ": these ", value.tokens,
                    " tokens are lost (sync.late: reject)");
  }
  return UploadVerdict{Kind::kLate, reason, std::nullopt};
}

}  // namespace

absl::StatusOr<UploadVerdict> JudgeUpload(const Policy& policy,
                                          const State& state,
                                          const std::string& worker,
                                          uint32_t fragment, uint64_t round,
                                          const UpdateValue& value,
                                          uint64_t expected_bytes) {
  if (fragment >= state.fragments.size()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no fragment ",
                                                   fragment, ", the run has ",
                                                   state.fragments.size()));
  }
  const auto known = state.workers.find(worker);
  if (known == state.workers.end()) {
    return absl::NotFoundError(
        absl::StrCat("worker ", worker, " never joined"));
  }
  if (known->second.membership == Membership::kEvicted) {
    return absl::PermissionDeniedError(
        absl::StrCat("worker ", worker, " is evicted from this run"));
  }
  const FragmentState& of = state.fragments[fragment];
  if (round == 0 || round > of.last_round) {
    return absl::InvalidArgumentError(
        absl::StrCat("update for round ", round, " of fragment ", fragment,
                     ", but the run is at round ", of.last_round));
  }
  if (!of.open.has_value() || of.open->round != round) {
    const auto committed = of.last_committed.find(worker);
    if (committed != of.last_committed.end() &&
        committed->second.round == round) {
      return JudgeRepeat(committed->second, value);
    }
    const auto refused = of.last_refused.find(worker);
    if (refused != of.last_refused.end() && refused->second.round == round) {
      return UploadVerdict{Kind::kRefused, refused->second.reason,
                           std::nullopt};
    }
    return Late(policy, round, of.last_round, value);
  }

  const auto committed = of.open->committed.find(worker);
  if (committed != of.open->committed.end()) {
    return JudgeRepeat(committed->second, value);
  }
  const auto refused = of.open->refused.find(worker);
  if (refused != of.open->refused.end()) {
    return UploadVerdict{Kind::kRefused, refused->second.reason, std::nullopt};
  }
  if (of.open->leases.count(worker) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", worker, " holds no lease in round ", round,
                     " of fragment ", fragment, ": watch for the next one"));
  }
  RETURN_IF_ERROR(CheckValue(policy, of, round, value, expected_bytes));
  return UploadVerdict{};
}

}  // namespace diloco

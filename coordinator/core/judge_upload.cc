#include <cmath>
#include <map>

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

// Verdicts of the open round are in one map, those of the rounds before it in
// another.
template <typename F>
const F* FindVerdict(const std::map<std::string, F>* open,
                     const std::map<std::string, F>& last,
                     const std::string& worker, uint64_t round) {
  const std::map<std::string, F>& verdicts = open != nullptr ? *open : last;
  const auto found = verdicts.find(worker);
  return found != verdicts.end() && found->second.round == round
             ? &found->second
             : nullptr;
}

bool IsOpen(const FragmentState& of, uint64_t round) {
  return of.open.has_value() && of.open->round == round;
}

const StoredUpdate* FindCommitted(const FragmentState& of,
                                  const std::string& worker, uint64_t round) {
  return FindVerdict(IsOpen(of, round) ? &of.open->committed : nullptr,
                     of.last_committed, worker, round);
}

const UpdateRefused* FindRefused(const FragmentState& of,
                                 const std::string& worker, uint64_t round) {
  return FindVerdict(IsOpen(of, round) ? &of.open->refused : nullptr,
                     of.last_refused, worker, round);
}

absl::Status Conflict(const UpdateCommitted& committed,
                      const std::string& comes) {
  return absl::AlreadyExistsError(absl::StrCat(
      "worker ", committed.worker, " already delivered another update for ",
      "fragment ", committed.fragment, " round ", committed.round,
      ": accepted was digest ", committed.value.digest.Short(), " (",
      committed.value.tokens, " tokens), now comes ", comes,
      "; the first stays valid"));
}

UploadVerdict Accepted(const StoredUpdate& committed) {
  return UploadVerdict{Kind::kAccepted, "accepted before", committed};
}

UploadVerdict Refused(const UpdateRefused& refused) {
  return UploadVerdict{Kind::kRefused, refused.reason, std::nullopt};
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
  // It may have been leased steps before its probe was judged.
  if (!known->second.refusal.empty()) {
    return absl::FailedPreconditionError(known->second.refusal);
  }
  const FragmentState& of = state.fragments[fragment];
  if (round == 0 || round > of.last_round) {
    return absl::InvalidArgumentError(
        absl::StrCat("update for round ", round, " of fragment ", fragment,
                     ", but the run is at round ", of.last_round));
  }
  if (const StoredUpdate* committed = FindCommitted(of, worker, round)) {
    if (committed->value == value) return Accepted(*committed);
    return Conflict(*committed, absl::StrCat(value.digest.Short(), " (",
                                             value.tokens, " tokens)"));
  }
  if (const UpdateRefused* refused = FindRefused(of, worker, round)) {
    return Refused(*refused);
  }
  if (!IsOpen(of, round)) return Late(policy, round, of.last_round, value);
  if (of.open->leases.count(worker) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", worker, " holds no lease in round ", round,
                     " of fragment ", fragment, ": watch for the next one"));
  }
  RETURN_IF_ERROR(CheckValue(policy, of, round, value, expected_bytes));
  return UploadVerdict{};
}

absl::StatusOr<std::optional<UploadVerdict>> DecidedUpload(
    const State& state, const std::string& worker, uint32_t fragment,
    uint64_t round, const Digest& digest) {
  if (fragment >= state.fragments.size()) return std::nullopt;
  const FragmentState& of = state.fragments[fragment];
  if (const StoredUpdate* committed = FindCommitted(of, worker, round)) {
    if (committed->value.digest == digest) return Accepted(*committed);
    return Conflict(*committed, digest.Short());
  }
  if (const UpdateRefused* refused = FindRefused(of, worker, round)) {
    return Refused(*refused);
  }
  return std::nullopt;
}

}  // namespace diloco

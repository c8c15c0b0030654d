#include "coordinator/cli/event_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/ids.h"
#include "common/base/utf8.h"
#include "coordinator/cli/format.h"

namespace diloco {
namespace {

std::string Because(const std::string& reason) {
  return reason.empty() ? "" : absl::StrCat(": ", reason);
}

std::string ShortHex(const std::string& digest) {
  return ToHex(digest).substr(0, 12);
}

std::string LeaseList(
    const google::protobuf::RepeatedPtrField<v1::StoredLease>& leases) {
  std::vector<std::string> words;
  for (const v1::StoredLease& lease : leases) {
    words.push_back(absl::StrCat(lease.worker(), " ", lease.steps(), " steps"));
  }
  return absl::StrJoin(words, ", ");
}

std::string Text(const v1::RunCreatedFact& fact) {
  return absl::StrCat("run ", fact.run(), " created, settings ",
                      ShortHex(fact.settings_digest()));
}

std::string Text(const v1::EpochStartedFact& fact) {
  return absl::StrCat("coordinator started, epoch ", fact.epoch());
}

std::string Text(const v1::WorkerJoinedFact& fact) {
  return absl::StrCat("worker ", fact.worker(), " joined from ", fact.peer(),
                      fact.fresh() ? ", afresh" : ", with its window");
}

std::string Text(const v1::WorkerReturnedFact& fact) {
  return absl::StrCat("worker ", fact.worker(), " is back");
}

std::string Text(const v1::WorkerDepartedFact& fact) {
  const char* how = fact.departure() == v1::DEPARTURE_KIND_LEFT   ? " left"
                    : fact.departure() == v1::DEPARTURE_KIND_LOST ? " is lost"
                    : fact.departure() == v1::DEPARTURE_KIND_REFUSED
                        ? " is refused"
                        : " evicted";
  return absl::StrCat("worker ", fact.worker(), how, Because(fact.reason()));
}

std::string Text(const v1::DrainRequestedFact& fact) {
  return absl::StrCat("worker ", fact.worker(),
                      " is to hand in what it has done and leave");
}

// Of the first fragment, which may be the only one, nothing is said.
template <typename Fact>
std::string FragmentText(const Fact& fact) {
  return fact.fragment() == 0 ? ""
                              : absl::StrCat(" of fragment ", fact.fragment());
}

template <typename Fact>
std::string RoundText(const Fact& fact) {
  return absl::StrCat("round ", fact.round(), FragmentText(fact));
}

std::string Text(const v1::RoundOpenedFact& fact) {
  // The reason tells the deadline, and who was skipped.
  return absl::StrCat(RoundText(fact), " open on version ", fact.base_version(),
                      ": ", LeaseList(fact.leases()), Because(fact.reason()));
}

std::string Text(const v1::LeaseAddedFact& fact) {
  return absl::StrCat(RoundText(fact), " goes on with ", fact.lease().worker(),
                      ", which it does not wait for", Because(fact.reason()));
}

std::string Text(const v1::RoundExtendedFact& fact) {
  std::string text =
      absl::StrCat(RoundText(fact), " extended", Because(fact.reason()));
  if (fact.added_size() > 0) {
    absl::StrAppend(&text, "; added ", LeaseList(fact.added()));
  }
  return text;
}

std::string Text(const v1::UpdateCommittedFact& fact) {
  return absl::StrFormat(
      "%s: update of %s accepted, %s tokens, loss %.4f, norm %.3g, %s",
      RoundText(fact), fact.worker(), FormatCount(fact.value().tokens()),
      fact.value().loss(), fact.norm(),
      FormatBytes(static_cast<double>(fact.value().bytes())));
}

std::string Text(const v1::UpdateRefusedFact& fact) {
  return absl::StrCat(RoundText(fact), ": update of ", fact.worker(),
                      " refused", Because(fact.reason()));
}

std::string Text(const v1::RoundClosedFact& fact) {
  if (fact.members_size() == 0) {
    return absl::StrCat(RoundText(fact), " void", Because(fact.reason()));
  }
  std::vector<std::string> members;
  for (const auto& member : fact.members()) members.push_back(member.worker());
  std::string text = absl::StrFormat(
      "%s closed after %s with %s, train loss %.4f", RoundText(fact),
      FormatSeconds(static_cast<double>(fact.duration_ms()) / 1000),
      absl::StrJoin(members, ", "), fact.loss());
  if (fact.missing_size() > 0) {
    absl::StrAppend(&text, ", without ", absl::StrJoin(fact.missing(), ", "));
  }
  return text + Because(fact.reason());
}

std::string Text(const v1::VersionPublishedFact& fact) {
  return absl::StrCat("version ", fact.version(), FragmentText(fact),
                      " published, digest ", ShortHex(fact.digest()), ", ",
                      FormatCount(fact.folded_tokens()), " tokens folded",
                      fact.theta_image().bytes() > 0 ? ", image written" : "");
}

std::string Text(const v1::EvalOpenedFact& fact) {
  std::vector<std::string> workers;
  for (const auto& slice : fact.slices()) workers.push_back(slice.worker());
  return absl::StrCat("evaluation of version ", fact.version(), " by ",
                      absl::StrJoin(workers, ", "));
}

std::string Text(const v1::EvalReassignedFact& fact) {
  return absl::StrCat("evaluation of version ", fact.version(), ": slice ",
                      fact.slice(), " now with ", fact.worker(),
                      Because(fact.reason()));
}

std::string Text(const v1::EvalReportedFact& fact) {
  const double tokens = static_cast<double>(fact.tokens());
  return absl::StrFormat(
      "evaluation of version %d: slice %d by %s, loss %.4f over %s tokens",
      fact.version(), fact.slice(), fact.worker(),
      tokens > 0 ? fact.loss_sum() / tokens : 0, FormatCount(fact.tokens()));
}

std::string Text(const v1::EvalAbandonedFact& fact) {
  return absl::StrCat("evaluation of version ", fact.version(), " given up",
                      Because(fact.reason()));
}

std::string Text(const v1::PauseChangedFact& fact) {
  return absl::StrCat(fact.paused() ? "run paused" : "run resumed",
                      Because(fact.reason()));
}

std::string Text(const v1::StopRequestedFact& fact) {
  return absl::StrCat("run is to stop after round ", fact.after_round(),
                      Because(fact.reason()));
}

std::string Text(const v1::RunFinishedFact& fact) {
  return absl::StrCat("run finished", Because(fact.reason()));
}

std::string Text(const v1::LineageStartedFact& fact) {
  std::string versions;
  for (const v1::LineageStartedFact::Fragment& fragment : fact.fragments()) {
    absl::StrAppend(&versions, versions.empty() ? "" : ", ",
                    fragment.version());
  }
  return absl::StrCat("lineage ", ToHex(fact.lineage()).substr(0, 8),
                      " goes on from version ", versions,
                      Because(fact.reason()));
}

std::string Text(const v1::SettingsChangedFact& fact) {
  std::vector<std::string> words;
  for (const auto& change : fact.changes()) {
    words.push_back(absl::StrCat(change.key(), " ", change.before(), " -> ",
                                 change.after(),
                                 change.at_once() ? " at once" : ""));
  }
  return absl::StrCat(
      "settings revision ", fact.revision(), " by ", fact.by(), ", from round ",
      fact.from_round(), ": ", absl::StrJoin(words, ", "),
      fact.reopens() ? "; the run goes on" : "", Because(fact.reason()));
}

std::string FactText(const v1::Record& record) {
  switch (record.fact_case()) {
    case v1::Record::kRunCreated:
      return Text(record.run_created());
    case v1::Record::kEpochStarted:
      return Text(record.epoch_started());
    case v1::Record::kWorkerJoined:
      return Text(record.worker_joined());
    case v1::Record::kWorkerReturned:
      return Text(record.worker_returned());
    case v1::Record::kWorkerDeparted:
      return Text(record.worker_departed());
    case v1::Record::kDrainRequested:
      return Text(record.drain_requested());
    case v1::Record::kRoundOpened:
      return Text(record.round_opened());
    case v1::Record::kRoundExtended:
      return Text(record.round_extended());
    case v1::Record::kLeaseAdded:
      return Text(record.lease_added());
    case v1::Record::kUpdateCommitted:
      return Text(record.update_committed());
    case v1::Record::kUpdateRefused:
      return Text(record.update_refused());
    case v1::Record::kRoundClosed:
      return Text(record.round_closed());
    case v1::Record::kVersionPublished:
      return Text(record.version_published());
    case v1::Record::kEvalOpened:
      return Text(record.eval_opened());
    case v1::Record::kEvalReassigned:
      return Text(record.eval_reassigned());
    case v1::Record::kEvalReported:
      return Text(record.eval_reported());
    case v1::Record::kEvalAbandoned:
      return Text(record.eval_abandoned());
    case v1::Record::kPauseChanged:
      return Text(record.pause_changed());
    case v1::Record::kStopRequested:
      return Text(record.stop_requested());
    case v1::Record::kRunFinished:
      return Text(record.run_finished());
    case v1::Record::kLineageStarted:
      return Text(record.lineage_started());
    case v1::Record::kSettingsChanged:
      return Text(record.settings_changed());
    case v1::Record::FACT_NOT_SET:
      break;
  }
  return "event of a newer coordinator, unknown to this dilococtl";
}

}  // namespace

std::string EventText(const v1::Record& record) {
  return Printable(FactText(record));
}

}  // namespace diloco

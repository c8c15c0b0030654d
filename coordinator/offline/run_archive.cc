#include "coordinator/offline/run_archive.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/store/fact_codec.h"
#include "coordinator/store/state_dir.h"

namespace diloco {

RunArchive::RunArchive(FileSystem* fs, std::string dir)
    : fs_(fs),
      dir_(std::move(dir)),
      versions_(fs, dir_),
      spools_(fs, JoinPath(dir_, kSpoolDir)) {}

absl::StatusOr<std::unique_ptr<RunArchive>> RunArchive::Read(FileSystem* fs,
                                                             std::string dir) {
  return ReadWith(&Journal::Scan, fs, std::move(dir));
}

absl::StatusOr<std::unique_ptr<RunArchive>> RunArchive::ReadToDamage(
    FileSystem* fs, std::string dir) {
  return ReadWith(&Journal::ScanGood, fs, std::move(dir));
}

absl::StatusOr<std::unique_ptr<RunArchive>> RunArchive::ReadWith(
    decltype(&Journal::Scan) scan, FileSystem* fs, std::string dir) {
  std::unique_ptr<RunArchive> archive(new RunArchive(fs, std::move(dir)));
  ASSIGN_OR_RETURN(archive->journal_,
                   scan(fs, archive->dir_, [&](const Journal::Record& record) {
                     return archive->Take(record);
                   }));
  if (archive->journal_.records == 0) {
    return absl::DataLossError(
        absl::StrCat("the journal in ", archive->dir_,
                     " has no record: the run was never created, or the "
                     "journal is lost"));
  }
  return archive;
}

RoundRecord* RunArchive::Find(uint32_t fragment, uint64_t round) {
  const auto it = by_round_.find({fragment, round});
  return it == by_round_.end() ? nullptr : &rounds_[it->second];
}

absl::Status RunArchive::Take(const Journal::Record& record) {
  ASSIGN_OR_RETURN(const Fact fact, DecodeFact(record.type, record.payload));
  RETURN_IF_ERROR(Evolve(state_, fact));
  ledger_.Add(fact);
  versions_.Learn(fact);
  // A lineage that goes back drops what came later.
  versions_at_.erase(versions_at_.upper_bound(ThetaVersion(state_)),
                     versions_at_.end());
  std::vector<uint64_t>& versions = versions_at_[ThetaVersion(state_)];
  versions.clear();
  for (const FragmentState& fragment : state_.fragments) {
    versions.push_back(fragment.version);
  }
  // Evolve has checked that each belongs to a round that is open or folding.
  if (const auto* created = std::get_if<RunCreated>(&fact)) {
    created_ = *created;
    for (uint32_t f = 0; f < created->fragments.size(); ++f) {
      const RunCreated::Fragment& files = created->fragments[f];
      by_version_[{f, 0}] = {
          files.digest,
          {FileRef{}, files.theta_image, files.momentum_image},
          std::nullopt,
          0};
    }
  } else if (const auto* opened = std::get_if<RoundOpened>(&fact)) {
    by_round_[{opened->fragment, opened->round}] = rounds_.size();
    rounds_.emplace_back().opened = *opened;
    rounds_.back().settings.swap(settings_);
  } else if (std::holds_alternative<EpochStarted>(fact)) {
    for (const FragmentState& fragment : state_.fragments) {
      if (!fragment.open.has_value()) continue;
      const auto f = static_cast<uint32_t>(&fragment - state_.fragments.data());
      Find(f, fragment.open->round)->restarted = true;
    }
  } else if (const auto* changed = std::get_if<SettingsChanged>(&fact)) {
    settings_.push_back(*changed);
  } else if (const auto* extended = std::get_if<RoundExtended>(&fact)) {
    Find(extended->fragment, extended->round)->extended.push_back(*extended);
  } else if (const auto* added = std::get_if<LeaseAdded>(&fact)) {
    Find(added->fragment, added->round)->late.push_back(*added);
  } else if (const auto* update = std::get_if<UpdateCommitted>(&fact)) {
    Find(update->fragment, update->round)->updates[update->worker] = *update;
  } else if (const auto* refused = std::get_if<UpdateRefused>(&fact)) {
    Find(refused->fragment, refused->round)->refused.push_back(*refused);
  } else if (const auto* closed = std::get_if<RoundClosed>(&fact)) {
    Find(closed->fragment, closed->round)->closed = *closed;
  } else if (const auto* published = std::get_if<VersionPublished>(&fact)) {
    Find(published->fragment, published->round)->published = *published;
    by_version_[{published->fragment, published->version}] = {
        published->digest,
        {published->blob, published->theta_image, published->momentum_image},
        by_round_[{published->fragment, published->round}],
        state_.fragments[published->fragment].folded_tokens};
  } else if (const auto* lineage = std::get_if<LineageStarted>(&fact)) {
    for (uint32_t f = 0; f < lineage->fragments.size(); ++f) {
      const LineageStarted::Fragment& begin = lineage->fragments[f];
      by_version_.erase(by_version_.upper_bound({f, begin.version}),
                        by_version_.upper_bound({f, UINT64_MAX}));
      for (RoundRecord& round : rounds_) {
        if (round.opened.fragment != f) continue;
        const bool kept =
            round.published.has_value()
                ? round.published->version <= begin.version
                : round.closed.has_value() && round.closed->members.empty();
        if (!kept) round.undone = true;
      }
      Version& version = by_version_[{f, begin.version}];
      version.digest = begin.digest;
      version.files.theta_image = begin.theta_image;
      version.files.momentum_image = begin.momentum_image;
    }
  }
  return absl::OkStatus();
}

const RunArchive::Version* RunArchive::FindVersion(uint32_t fragment,
                                                   uint64_t version) const {
  const auto it = by_version_.find({fragment, version});
  return it == by_version_.end() ? nullptr : &it->second;
}

const RoundRecord* RunArchive::RoundOfVersion(uint32_t fragment,
                                              uint64_t version) const {
  const Version* const found = FindVersion(fragment, version);
  if (found == nullptr || !found->round.has_value()) return nullptr;
  return &rounds_[*found->round];
}

std::optional<Digest> RunArchive::DigestOf(uint32_t fragment,
                                           uint64_t version) const {
  const Version* const found = FindVersion(fragment, version);
  if (found == nullptr) return std::nullopt;
  return found->digest;
}

std::vector<uint64_t> RunArchive::VersionsAt(uint64_t theta_version) const {
  const auto found = versions_at_.find(theta_version);
  return found != versions_at_.end()
             ? found->second
             : std::vector<uint64_t>(state_.fragments.size(), theta_version);
}

absl::StatusOr<std::vector<uint64_t>> RunArchive::VersionsWith(
    uint32_t fragment, uint64_t version) const {
  for (const auto& [theta_version, versions] : versions_at_) {
    if (fragment < versions.size() && versions[fragment] == version) {
      return versions;
    }
  }
  return absl::NotFoundError(absl::StrCat("version ", version, " of fragment ",
                                          fragment, " is not in ", dir_));
}

uint64_t RunArchive::FoldedTokensAt(uint32_t fragment, uint64_t version) const {
  const Version* const found = FindVersion(fragment, version);
  return found == nullptr ? 0 : found->folded_tokens;
}

RunArchive::Files RunArchive::FilesOf(uint32_t fragment,
                                      uint64_t version) const {
  const Version* const found = FindVersion(fragment, version);
  return found == nullptr ? Files{} : found->files;
}

}  // namespace diloco

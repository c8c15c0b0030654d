// A state directory as it lies on disk, read without changing anything, also
// while its coordinator runs: what the journal says, and the files it names.
//
//   ASSIGN_OR_RETURN(auto archive, RunArchive::Read(fs, "state"));
//   for (const RoundRecord& round : archive->rounds()) ...
#ifndef COORDINATOR_OFFLINE_RUN_ARCHIVE_H_
#define COORDINATOR_OFFLINE_RUN_ARCHIVE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/file_system.h"
#include "coordinator/core/facts.h"
#include "coordinator/core/ledger.h"
#include "coordinator/core/state.h"
#include "coordinator/store/journal.h"
#include "coordinator/store/spool.h"
#include "coordinator/store/version_store.h"

namespace diloco {

// What the journal records of one round, from its opening to its version.
struct RoundRecord {
  std::vector<SettingsChanged> settings;  // Since the round before opened.
  RoundOpened opened;
  std::vector<RoundExtended> extended;
  std::vector<LeaseAdded> late;
  std::map<std::string, UpdateCommitted> updates;  // By worker.
  std::vector<UpdateRefused> refused;
  std::optional<RoundClosed> closed;
  std::optional<VersionPublished> published;  // Never of a void round.
  // A later rollback or restore dropped it, or went back before its version.
  bool undone = false;
  // The coordinator was started again while it was open: what its closing says
  // of its duration counts from there.
  bool restarted = false;
};

// One thread at a time.
class RunArchive {
 public:
  // NOT_FOUND when `dir` has no journal. DATA_LOSS or FAILED_PRECONDITION
  // (damaged, newer format) as Journal::Scan; a torn tail is no error.
  static absl::StatusOr<std::unique_ptr<RunArchive>> Read(FileSystem* fs,
                                                          std::string dir);
  // What the journal says before the first damage (Journal::ScanGood).
  static absl::StatusOr<std::unique_ptr<RunArchive>> ReadToDamage(
      FileSystem* fs, std::string dir);

  FileSystem* fs() const { return fs_; }
  const std::string& dir() const { return dir_; }
  const Journal::Scanned& journal() const { return journal_; }
  const RunCreated& created() const { return created_; }
  const State& state() const { return state_; }
  const Ledger& ledger() const { return ledger_; }
  // In the order of their opening.
  const std::vector<RoundRecord>& rounds() const { return rounds_; }
  // The round that made a version; null for version 0 and unknown ones. What a
  // rollback undid is unknown.
  const RoundRecord* RoundOfVersion(uint32_t fragment, uint64_t version) const;
  // Digest of theta at a version; absent for an unknown one.
  std::optional<Digest> DigestOf(uint32_t fragment, uint64_t version) const;
  // The versions by fragment of a copy of theta (ThetaVersion in state.h);
  // those that many of each, which nobody has, for an unknown one.
  std::vector<uint64_t> VersionsAt(uint64_t theta_version) const;
  // Those of the copy of theta that a version of a fragment began with.
  absl::StatusOr<std::vector<uint64_t>> VersionsWith(uint32_t fragment,
                                                     uint64_t version) const;
  // Into the fragment, when the version was published.
  uint64_t FoldedTokensAt(uint32_t fragment, uint64_t version) const;
  // The files of a version as recorded; empty ones where there is none.
  struct Files {
    FileRef blob, theta_image, momentum_image;
  };
  Files FilesOf(uint32_t fragment, uint64_t version) const;

  const VersionStore& versions() const { return versions_; }
  SpoolStore& spools() { return spools_; }

 private:
  RunArchive(FileSystem* fs, std::string dir);
  static absl::StatusOr<std::unique_ptr<RunArchive>> ReadWith(
      decltype(&Journal::Scan) scan, FileSystem* fs, std::string dir);
  absl::Status Take(const Journal::Record& record);
  RoundRecord* Find(uint32_t fragment, uint64_t round);

  FileSystem* const fs_;
  const std::string dir_;
  Journal::Scanned journal_;
  RunCreated created_;
  State state_;
  Ledger ledger_;
  std::vector<RoundRecord> rounds_;
  std::vector<SettingsChanged> settings_;     // Since the newest round opened.
  using Key = std::pair<uint32_t, uint64_t>;  // Fragment; round or version.
  struct Version {
    Digest digest;
    Files files;
    std::optional<size_t> round;  // In rounds_; absent for version 0.
    uint64_t folded_tokens = 0;
  };
  const Version* FindVersion(uint32_t fragment, uint64_t version) const;

  std::map<uint64_t, std::vector<uint64_t>> versions_at_;
  std::map<Key, size_t> by_round_;     // Indices into rounds_.
  std::map<Key, Version> by_version_;  // Of the newest lineage.
  VersionStore versions_;
  SpoolStore spools_;
};

}  // namespace diloco

#endif  // COORDINATOR_OFFLINE_RUN_ARCHIVE_H_

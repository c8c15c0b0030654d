#include "coordinator/offline/verify.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/offline/replay.h"
#include "coordinator/store/state_dir.h"

namespace diloco {
namespace {

// Of a directory whose coordinator goes on.
constexpr int kReadings = 5;

class Verifier {
 public:
  Verifier(RunArchive& archive,
           const std::function<void(const Finding&)>& report)
      : archive_(archive), report_(report) {}

  bool Run() {
    CheckSettings();
    for (fragment_ = 0; fragment_ < archive_.state().fragments.size();
         ++fragment_) {
      images_.clear();
      newest_ = archive_.state().fragments[fragment_].version;
      CheckImages();
      CheckBlobs();
      CheckFolds();
    }
    CheckPending();
    return good_;
  }

 private:
  void Say(Finding::Kind kind, std::string text) {
    if (kind == Finding::Kind::kProblem) good_ = false;
    report_({kind, std::move(text)});
  }

  // Of the run's creation: a start with an edited run file reads them.
  void CheckSettings() {
    const std::string path = JoinPath(archive_.dir(), kSettingsFile);
    const absl::StatusOr<std::string> text = ReadFile(archive_.fs(), path);
    const Digest& recorded = archive_.created().settings_digest;
    if (!text.ok()) {
      Say(Finding::Kind::kProblem, std::string(text.status().message()));
    } else if (Sha256(*text) != recorded) {
      Say(Finding::Kind::kProblem,
          absl::StrCat(path, " has digest ", Sha256(*text).Short(),
                       ", recorded is ", recorded.Short()));
    } else {
      Say(Finding::Kind::kGood,
          absl::StrCat("settings of the run's creation, ", recorded.Short()));
    }
  }

  bool Has(const FileRef& file) const {
    return file.bytes > 0 && archive_.versions().Find(file.digest).has_value();
  }

  std::string Version(uint64_t version) const {
    return absl::StrCat("version ", version, " of fragment ", fragment_);
  }

  void CheckImages() {
    for (uint64_t version = 0; version <= newest_; ++version) {
      const RunArchive::Files files = archive_.FilesOf(fragment_, version);
      const bool theta = Has(files.theta_image);
      if (!theta && !Has(files.momentum_image)) continue;
      const absl::Status status =
          LoadImage(archive_, fragment_, version).status();
      if (status.ok()) {
        images_.push_back(version);
        Say(Finding::Kind::kGood,
            absl::StrCat("image of ", Version(version), ", theta ",
                         archive_.DigestOf(fragment_, version)->Short()));
      } else {
        Say(Finding::Kind::kProblem, absl::StrCat("image of ", Version(version),
                                                  ": ", status.message()));
      }
    }
    if (!images_.empty()) return;
    Say(Finding::Kind::kProblem,
        absl::StrCat("fragment ", fragment_,
                     " has no good image: restore a backup"));
  }

  // Workers that come back late are led on by blobs.
  void CheckBlobs() {
    uint64_t first = newest_ + 1;
    while (first > 1 && Has(archive_.FilesOf(fragment_, first - 1).blob)) {
      --first;
    }
    std::optional<FragmentValues> values;
    for (const uint64_t image : images_) {
      if (image + 1 < first) continue;
      absl::StatusOr<FragmentValues> loaded =
          LoadImage(archive_, fragment_, image);
      if (loaded.ok()) values = *std::move(loaded);
      break;
    }
    if (!values.has_value()) {
      if (!images_.empty()) {
        Say(Finding::Kind::kProblem,
            absl::StrCat("no update blobs lead from an image to ",
                         Version(newest_), ": workers cannot pull it"));
      }
      return;
    }
    const uint64_t from = values->version;
    while (values->version < newest_) {
      const absl::Status status = ApplyBlob(archive_, fragment_, &*values);
      if (status.ok()) continue;
      Say(Finding::Kind::kProblem, std::string(status.message()));
      return;
    }
    if (from == newest_) return;
    Say(Finding::Kind::kGood,
        absl::StrCat("update blobs lead from ", Version(from), " to version ",
                     newest_, ", theta ",
                     archive_.DigestOf(fragment_, newest_)->Short()));
  }

  bool HasSpools(const RoundRecord& round) {
    for (const RoundMember& member : round.closed->members) {
      if (!archive_.spools()
               .OpenComplete(fragment_, round.closed->round, member.worker,
                             member.digest)
               .ok()) {
        return false;
      }
    }
    return true;
  }

  void CheckFolds() {
    if (images_.empty()) return;
    const uint64_t newest_image = images_.back();
    // Back to where the updates are kept, from an image on.
    uint64_t first = newest_ + 1;
    while (first > 1) {
      const RoundRecord* const round =
          archive_.RoundOfVersion(fragment_, first - 1);
      if (round == nullptr || !HasSpools(*round)) break;
      --first;
    }
    if (first > newest_image + 1) {
      Say(Finding::Kind::kProblem,
          absl::StrCat("a start needs the updates of ",
                       Version(newest_image + 1), " and later ones, those of ",
                       Version(first - 1), " are not all there"));
      return;
    }
    for (const uint64_t image : images_) {
      if (image + 1 < first || image == newest_) continue;
      FoldFrom(image);
      return;
    }
  }

  void FoldFrom(uint64_t image) {
    absl::StatusOr<FragmentValues> values =
        LoadImage(archive_, fragment_, image);
    while (values.ok() && values->version < newest_) {
      const RoundRecord& round =
          *archive_.RoundOfVersion(fragment_, values->version + 1);
      const absl::StatusOr<FoldResult> folded =
          FoldRound(archive_, round, {}, &*values);
      absl::Status status = folded.status();
      if (status.ok()) status = CheckReproduced(*round.published, *folded);
      if (!status.ok()) {
        Say(Finding::Kind::kProblem,
            absl::StrCat("round ", round.closed->round, " of fragment ",
                         fragment_, ": ", status.message()));
        return;
      }
    }
    Say(Finding::Kind::kGood,
        absl::StrCat("folding the rounds after ", Version(image), " up to ",
                     newest_, " again gives the published digests"));
  }

  void CheckUpdate(const UpdateCommitted& update) {
    absl::StatusOr<PartReader> reader = archive_.spools().OpenComplete(
        update.fragment, update.round, update.worker, update.value.digest);
    absl::Status status = reader.status();
    if (status.ok()) {
      const absl::StatusOr<Digest> digest = BlockDigestOfFile(reader->file());
      status = digest.status();
      if (status.ok() && *digest != update.value.digest) {
        status = absl::DataLossError(
            absl::StrCat("has digest ", digest->Short(), ", accepted was ",
                         update.value.digest.Short()));
      }
    }
    const std::string what =
        absl::StrCat("update of ", update.worker, " for round ", update.round);
    if (status.ok()) {
      Say(Finding::Kind::kGood, what);
    } else {
      Say(Finding::Kind::kProblem, absl::StrCat(what, ": ", status.message()));
    }
  }

  // What was acknowledged and not yet folded.
  void CheckPending() {
    for (const RoundRecord& round : archive_.rounds()) {
      if (round.published.has_value()) continue;
      const FragmentState& fragment =
          archive_.state().fragments[round.opened.fragment];
      const bool open = fragment.open.has_value() &&
                        fragment.open->round == round.opened.round;
      const bool folding = fragment.folding.has_value() &&
                           fragment.folding->round == round.opened.round;
      if (!open && !folding) continue;
      for (const auto& [worker, update] : round.updates) CheckUpdate(update);
    }
  }

  RunArchive& archive_;
  const std::function<void(const Finding&)>& report_;
  bool good_ = true;
  uint32_t fragment_ = 0;
  uint64_t newest_ = 0;
  std::vector<uint64_t> images_;  // Good ones of the fragment, ascending.
};

}  // namespace

bool VerifyRun(RunArchive& archive,
               const std::function<void(const Finding&)>& report) {
  return Verifier(archive, report).Run();
}

absl::StatusOr<bool> VerifyStateDir(
    FileSystem* fs, const std::string& dir,
    const std::function<void(const Finding&)>& report) {
  ASSIGN_OR_RETURN(std::unique_ptr<RunArchive> archive,
                   RunArchive::Read(fs, dir));
  for (int attempt = 1;; ++attempt) {
    const Journal::Scanned& journal = archive->journal();
    report({Finding::Kind::kGood,
            absl::StrCat(
                "journal, ", journal.records, " records in ",
                journal.segments.size(),
                journal.segments.size() == 1 ? " segment" : " segments",
                journal.tail_bytes == 0
                    ? ""
                    : absl::StrCat(", and a torn tail of ", journal.tail_bytes,
                                   " bytes that a start drops"))});
    std::vector<Finding> problems;
    const bool good = VerifyRun(*archive, [&](const Finding& finding) {
      if (finding.kind == Finding::Kind::kProblem) {
        problems.push_back(finding);
      } else {
        report(finding);
      }
    });
    if (good) return true;
    ASSIGN_OR_RETURN(std::unique_ptr<RunArchive> now,
                     RunArchive::Read(fs, dir));
    if (now->journal().records == journal.records || attempt == kReadings) {
      for (const Finding& problem : problems) report(problem);
      return false;
    }
    report({Finding::Kind::kGood,
            absl::StrCat("the run went on meanwhile; ", problems.size(),
                         problems.size() == 1 ? " file" : " files",
                         " may have been removed as no longer needed: all is "
                         "read again")});
    archive = std::move(now);
  }
}

}  // namespace diloco

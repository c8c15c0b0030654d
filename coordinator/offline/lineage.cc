#include "coordinator/offline/lineage.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/io/path.h"
#include "common/io/remove_tree.h"
#include "coordinator/offline/copy.h"
#include "coordinator/offline/replay.h"
#include "coordinator/offline/run_archive.h"
#include "coordinator/offline/run_copy.h"
#include "coordinator/offline/salvage.h"
#include "coordinator/store/fact_codec.h"
#include "coordinator/store/journal.h"
#include "coordinator/store/state_dir.h"

namespace diloco {
namespace {

absl::Status AppendToJournal(FileSystem* fs, const std::string& state_dir,
                             const Fact& fact) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Journal> journal,
                   Journal::Open(fs, state_dir, [](const Journal::Record&) {
                     return absl::OkStatus();
                   }));
  const EncodedFact encoded = EncodeFact(fact);
  journal->Append(encoded.type, encoded.payload);
  return journal->Commit();
}

struct Image {
  FileRef theta, momentum;
};

absl::StatusOr<Image> WriteImageFiles(FileSystem* fs,
                                      const std::string& state_dir,
                                      uint32_t fragment, uint64_t version,
                                      const FragmentValues& values) {
  VersionStore store(fs, state_dir);
  const auto write = [&]() -> absl::StatusOr<Image> {
    ASSIGN_OR_RETURN(VersionStore::Pending pending,
                     store.Create(fragment, version, /*with_blob=*/false,
                                  /*with_image=*/true));
    Image image;
    ASSIGN_OR_RETURN(image.theta.digest, WriteImage(pending.theta_image.get(),
                                                    fragment, values.theta));
    ASSIGN_OR_RETURN(
        image.momentum.digest,
        WriteImage(pending.momentum_image.get(), fragment, values.momentum));
    image.theta.bytes = image.momentum.bytes =
        PartFileBytes(Codec::kFp32, static_cast<int64_t>(values.theta.size()));
    RETURN_IF_ERROR(store.Commit(std::move(pending)));
    return image;
  };
  absl::StatusOr<Image> image = write();
  // Not half an image more on a disk that is full.
  if (!image.ok()) store.Abandon(fragment, version);
  return image;
}

// What is dropped of the rounds that are not published, in words.
std::string Dropped(const State& state) {
  uint64_t updates = 0;
  for (const FragmentState& fragment : state.fragments) {
    if (fragment.open.has_value()) updates += fragment.open->committed.size();
    if (fragment.folding.has_value()) {
      updates += fragment.folding->members.size();
    }
  }
  if (updates == 0) return "";
  return absl::StrCat("; ", updates,
                      " accepted updates that were not folded are dropped");
}

// Of a copy whose journal lacks its end: the newest versions that can be had,
// with images of their own. Appends to the fact's reason what is lost with it.
absl::Status BeginBeforeDamage(RunArchive& archive, const std::string& damaged,
                               LineageStarted& fact) {
  for (uint32_t f = 0; f < archive.state().fragments.size(); ++f) {
    ASSIGN_OR_RETURN(const Salvaged salvaged, Salvage(archive, f, damaged));
    LineageStarted::Fragment& begin = fact.fragments.emplace_back();
    begin.version = salvaged.values.version;
    begin.digest = DigestOfValues(salvaged.values.theta);
    ASSIGN_OR_RETURN(const Image image,
                     WriteImageFiles(archive.fs(), archive.dir(), f,
                                     begin.version, salvaged.values));
    begin.theta_image = image.theta;
    begin.momentum_image = image.momentum;
    begin.folded_tokens = archive.FoldedTokensAt(f, begin.version);
    fact.folded_tokens += begin.folded_tokens;
    const uint64_t newest = archive.state().fragments[f].version;
    if (salvaged.later_image.has_value()) {
      absl::StrAppend(&fact.reason, "; no image of fragment ", f,
                      " up to version ", newest,
                      " is left: goes on with theta and momentum of the image "
                      "of version ",
                      *salvaged.later_image, ", under the number ", newest);
    } else if (begin.version < newest) {
      absl::StrAppend(&fact.reason, "; versions ", begin.version + 1, " to ",
                      newest, " of fragment ", f, " cannot be rebuilt");
    }
  }
  fact.folded_tokens /= fact.fragments.size();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LineageStarted> RollBack(FileSystem* fs,
                                        const std::string& state_dir,
                                        uint64_t version,
                                        const std::string& lineage) {
  RETURN_IF_ERROR(CheckMayGoOn(fs, state_dir));
  ASSIGN_OR_RETURN(const std::unique_ptr<FileLock> lock,
                   fs->Lock(JoinPath(state_dir, kLockName)));
  ASSIGN_OR_RETURN(const std::unique_ptr<RunArchive> archive,
                   RunArchive::Read(fs, state_dir));
  LineageStarted fact;
  fact.lineage = lineage;
  const std::vector<uint64_t> versions = archive->VersionsAt(version);
  for (uint32_t f = 0; f < versions.size(); ++f) {
    ASSIGN_OR_RETURN(const FragmentValues values,
                     ValuesAt(*archive, f, versions[f]));
    LineageStarted::Fragment& begin = fact.fragments.emplace_back();
    begin.version = versions[f];
    begin.digest = *archive->DigestOf(f, versions[f]);
    // Anew, even where there is one: the version's own may be the one that is
    // damaged.
    ASSIGN_OR_RETURN(const Image image,
                     WriteImageFiles(fs, state_dir, f, versions[f], values));
    begin.theta_image = image.theta;
    begin.momentum_image = image.momentum;
    begin.folded_tokens = archive->FoldedTokensAt(f, versions[f]);
    fact.folded_tokens += begin.folded_tokens;
  }
  fact.folded_tokens /= versions.size();
  fact.reason =
      absl::StrCat("rolled back from version ", ThetaVersion(archive->state()),
                   Dropped(archive->state()));
  RETURN_IF_ERROR(AppendToJournal(fs, state_dir, fact));
  return fact;
}

absl::StatusOr<LineageStarted> RestoreBackup(
    FileSystem* fs, const std::string& backup, const std::string& out,
    const std::string& lineage, bool accept_loss,
    const std::function<void(uint64_t)>& progress) {
  if (fs->Exists(out)) {
    return absl::AlreadyExistsError(absl::StrCat(
        out,
        " exists; restore writes a new directory: move it away, or give "
        "another name"));
  }
  LineageStarted fact;
  const auto finish = [&](const std::string& dir,
                          const RunCopy& copy) -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<RunArchive> archive,
                     RunArchive::Read(fs, dir));
    fact = LineageStarted();
    fact.lineage = lineage;
    fact.reason =
        absl::StrCat("restored from a backup", Dropped(archive->state()));
    if (!copy.damage.ok()) {
      absl::StrAppend(&fact.reason, "; what the journal held behind record ",
                      copy.records, " is lost");
      RETURN_IF_ERROR(BeginBeforeDamage(*archive, backup, fact));
      return AppendToJournal(fs, dir, fact);
    }
    for (uint32_t f = 0; f < archive->state().fragments.size(); ++f) {
      const uint64_t version = archive->state().fragments[f].version;
      LineageStarted::Fragment& begin = fact.fragments.emplace_back();
      begin.version = version;
      begin.digest = *archive->DigestOf(f, version);
      begin.theta_image = archive->FilesOf(f, version).theta_image;
      begin.momentum_image = archive->FilesOf(f, version).momentum_image;
      begin.folded_tokens = archive->state().fragments[f].folded_tokens;
    }
    fact.folded_tokens = archive->state().folded_tokens;
    return AppendToJournal(fs, dir, fact);
  };
  CopyOptions options;
  options.accept_loss = accept_loss;
  RETURN_IF_ERROR(CopyRun(fs, backup, out, options, progress, finish).status());
  return fact;
}

absl::StatusOr<RunCreated> Fork(FileSystem* fs, const std::string& state_dir,
                                uint64_t version, const ForkTarget& target,
                                const std::string& lineage) {
  const std::string out = WithoutSlash(target.state_dir);
  if (fs->Exists(out)) {
    return absl::AlreadyExistsError(
        absl::StrCat(out,
                     " exists; a fork is a new run in a new directory: give "
                     "another state.dir in its run file"));
  }
  RETURN_IF_ERROR(CheckOutside(fs, out));
  ASSIGN_OR_RETURN(const std::unique_ptr<RunArchive> archive,
                   RunArchive::Read(fs, state_dir));
  if (archive->created().layout_digest != target.layout_digest) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the run file describes another model (layout ",
        target.layout_digest.Short(), ") than the run in ", state_dir, " has (",
        archive->created().layout_digest.Short(),
        "): only a run of the same model can be forked from it"));
  }
  RunCreated created;
  created.run = target.run;
  created.lineage = lineage;
  created.settings_digest = target.settings_digest;
  created.layout_digest = target.layout_digest;
  RemoveLeftBeside(fs, out);
  const std::string partial = NewNameBeside(fs, out);
  const auto write = [&]() -> absl::Status {
    const std::vector<uint64_t> versions = archive->VersionsAt(version);
    for (uint32_t f = 0; f < versions.size(); ++f) {
      ASSIGN_OR_RETURN(const FragmentValues values,
                       ValuesAt(*archive, f, versions[f]));
      ASSIGN_OR_RETURN(const Image image,
                       WriteImageFiles(fs, partial, f, 0, values));
      created.fragments.push_back(
          {*archive->DigestOf(f, versions[f]), image.theta, image.momentum});
    }
    RETURN_IF_ERROR(WriteFileAtomic(fs, JoinPath(partial, kSettingsFile),
                                    target.settings_text));
    RETURN_IF_ERROR(AppendToJournal(fs, partial, created));
    RETURN_IF_ERROR(fs->Rename(partial, target.state_dir));
    return fs->SyncDir(DirName(target.state_dir));
  };
  const absl::Status written = write();
  if (!written.ok()) {
    RemoveTree(fs, partial);
    return written;
  }
  return created;
}

}  // namespace diloco

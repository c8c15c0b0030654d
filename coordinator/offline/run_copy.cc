#include "coordinator/offline/run_copy.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/io/path.h"
#include "common/io/remove_tree.h"
#include "coordinator/offline/copy.h"
#include "coordinator/offline/run_archive.h"
#include "coordinator/offline/verify.h"
#include "coordinator/store/journal_format.h"
#include "coordinator/store/state_dir.h"

namespace diloco {
namespace {

// Retention may take a file between the journal's reading and its copying.
constexpr int kAttempts = 5;

// Versions and updates that the journal names and that are there.
std::vector<std::string> NamedFiles(RunArchive& archive) {
  std::vector<std::string> paths;
  for (uint32_t f = 0; f < archive.state().fragments.size(); ++f) {
    for (uint64_t v = 0; v <= archive.state().fragments[f].version; ++v) {
      const RunArchive::Files files = archive.FilesOf(f, v);
      for (const FileRef& file :
           {files.theta_image, files.momentum_image, files.blob}) {
        if (file.bytes == 0) continue;
        const auto found = archive.versions().Find(file.digest);
        if (found.has_value()) paths.push_back(found->path);
      }
    }
  }
  for (const RoundRecord& round : archive.rounds()) {
    for (const auto& [worker, update] : round.updates) {
      const std::string path = archive.spools().CompletePath(
          update.fragment, update.round, worker, update.value.digest);
      if (archive.fs()->Exists(path)) paths.push_back(path);
    }
  }
  return paths;
}

absl::StatusOr<RunCopy> CopyFiles(FileSystem* fs, const std::string& state_dir,
                                  const CopyOptions& options, TreeCopy& copy) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RunArchive> archive,
                   options.accept_loss ? RunArchive::ReadToDamage(fs, state_dir)
                                       : RunArchive::Read(fs, state_dir));
  std::vector<std::string> named = NamedFiles(*archive);
  for (std::string& path : named) {
    path = copy.Relative(path);
    RETURN_IF_ERROR(copy.Hold(path));
  }
  // The mark comes first: a copy that was cut short is no state directory.
  if (!options.mark.empty()) {
    RETURN_IF_ERROR(copy.Write(kBackupMark, options.mark));
  }
  for (const Journal::Segment& segment : archive->journal().segments) {
    RETURN_IF_ERROR(copy.File(segment.name, segment.good_bytes));
  }
  // Its own: the run may have begun another segment meanwhile.
  RETURN_IF_ERROR(
      copy.Write(kJournalHead, EncodeJournalHead(static_cast<uint32_t>(
                                   archive->journal().segments.size()))));
  for (const char* file : {kSettingsFile, kRunFileSettings}) {
    if (!fs->Exists(JoinPath(state_dir, file))) continue;
    RETURN_IF_ERROR(copy.File(file, std::nullopt));
  }
  for (const std::string& path : named) {
    RETURN_IF_ERROR(copy.File(path, std::nullopt));
  }
  RETURN_IF_ERROR(copy.Sync());
  RunCopy result;
  result.records = archive->journal().records;
  result.version = ThetaVersion(archive->state());
  result.files = copy.files();
  result.bytes = copy.bytes();
  result.damage = archive->journal().damage;
  return result;
}

absl::Status Verify(FileSystem* fs, const std::string& dir) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RunArchive> archive,
                   RunArchive::Read(fs, dir));
  std::string problem;
  const bool good = VerifyRun(*archive, [&problem](const Finding& finding) {
    if (finding.kind == Finding::Kind::kProblem && problem.empty()) {
      problem = finding.text;
    }
  });
  return good ? absl::OkStatus() : absl::DataLossError(problem);
}

}  // namespace

absl::Status CheckOutside(FileSystem* fs, const std::string& out) {
  for (std::string dir = DirName(out);; dir = DirName(dir)) {
    for (const std::string& name :
         {std::string(kJournalHead), SegmentName(1)}) {
      if (!fs->Exists(JoinPath(dir, name))) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(out, " lies in the state directory ", dir,
                       ": name a directory outside of it, best on another "
                       "disk"));
    }
    if (dir == "." || dir == "/" || DirName(dir) == dir) break;
  }
  return absl::OkStatus();
}

absl::StatusOr<RunCopy> CopyRun(
    FileSystem* fs, const std::string& from, const std::string& to,
    const CopyOptions& options, const std::function<void(uint64_t)>& progress,
    const std::function<absl::Status(const std::string&, const RunCopy&)>&
        finish) {
  const std::string state_dir = WithoutSlash(from);
  const std::string out = WithoutSlash(to);
  if (fs->Exists(out)) {
    return absl::AlreadyExistsError(
        absl::StrCat(out, " exists; give the name of a new directory"));
  }
  RETURN_IF_ERROR(CheckOutside(fs, out));
  RemoveLeftBeside(fs, out);
  const std::string partial = NewNameBeside(fs, out);
  absl::Status last;
  for (int i = 0; i < kAttempts; ++i) {
    TreeCopy copy(fs, state_dir, partial, progress);
    absl::StatusOr<RunCopy> result = CopyFiles(fs, state_dir, options, copy);
    last = result.status();
    // First, as a run with losses may have to go back to be whole.
    if (last.ok()) last = finish(partial, *result);
    if (last.ok()) last = Verify(fs, partial);
    if (last.ok()) last = fs->Rename(partial, out);
    if (last.ok()) last = fs->SyncDir(DirName(out));
    if (last.ok()) return result;
    RemoveTree(fs, partial);
    // Only what retention took meanwhile is worth another attempt.
    if (!absl::IsNotFound(last) && !absl::IsDataLoss(last)) break;
  }
  // The name of what is removed again tells nobody anything.
  return WithContext(
      absl::Status(last.code(),
                   absl::StrReplaceAll(last.message(), {{partial, state_dir}})),
      absl::StrCat("copy of ", state_dir));
}

absl::StatusOr<RunCopy> BackUp(FileSystem* fs, const std::string& state_dir,
                               const std::string& out,
                               const std::function<void(uint64_t)>& progress) {
  CopyOptions options;
  options.mark =
      absl::StrCat("A backup of ", state_dir,
                   ": dilococtl restore makes a state directory of it.\n");
  return CopyRun(
      fs, state_dir, out, options, progress,
      [](const std::string&, const RunCopy&) { return absl::OkStatus(); });
}

}  // namespace diloco

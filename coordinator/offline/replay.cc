#include "coordinator/offline/replay.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/part_file.h"
#include "coordinator/store/part_values.h"

namespace diloco {
namespace {

// Takes what a fold writes, for its digest alone.
class NullFile final : public WritableFile {
 public:
  absl::Status WriteAt(uint64_t offset, absl::string_view bytes) override {
    size_ = std::max(size_, offset + bytes.size());
    return absl::OkStatus();
  }
  absl::Status Sync() override { return absl::OkStatus(); }
  void StartWriteBack() override {}
  absl::Status Truncate(uint64_t size) override {
    size_ = size;
    return absl::OkStatus();
  }
  absl::Status Reserve(uint64_t) override { return absl::OkStatus(); }
  absl::StatusOr<uint64_t> Size() const override { return size_; }

 private:
  uint64_t size_ = 0;
};

absl::Status Gone(const RunArchive& archive, uint32_t fragment,
                  uint64_t version, const char* what) {
  return absl::NotFoundError(absl::StrCat("the ", what, " of version ", version,
                                          " of fragment ", fragment,
                                          " is not in ", archive.dir()));
}

absl::StatusOr<std::string> PathOf(const RunArchive& archive, uint32_t fragment,
                                   uint64_t version, const FileRef& file,
                                   const char* what) {
  std::optional<VersionStore::Found> found;
  if (file.bytes > 0) found = archive.versions().Find(file.digest);
  if (!found.has_value()) return Gone(archive, fragment, version, what);
  return found->path;
}

absl::StatusOr<PartReader> OpenPart(FileSystem* fs, const std::string& path,
                                    const FileRef& expected) {
  ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, fs->OpenForRead(path));
  ASSIGN_OR_RETURN(const Digest digest, BlockDigestOfFile(*file));
  if (digest != expected.digest) {
    return absl::DataLossError(absl::StrCat(path, " has digest ",
                                            digest.Short(), ", recorded is ",
                                            expected.digest.Short()));
  }
  return PartReader::Open(std::move(file), path);
}

absl::StatusOr<PartReader> OpenBlob(const RunArchive& archive,
                                    uint32_t fragment, uint64_t version) {
  const FileRef blob = archive.FilesOf(fragment, version).blob;
  ASSIGN_OR_RETURN(const std::string path,
                   PathOf(archive, fragment, version, blob, "update blob"));
  return OpenPart(archive.fs(), path, blob);
}

}  // namespace

absl::StatusOr<FragmentValues> LoadImage(const RunArchive& archive,
                                         uint32_t fragment, uint64_t version) {
  const RunArchive::Files files = archive.FilesOf(fragment, version);
  ASSIGN_OR_RETURN(
      const std::string theta,
      PathOf(archive, fragment, version, files.theta_image, "theta image"));
  ASSIGN_OR_RETURN(const std::string momentum,
                   PathOf(archive, fragment, version, files.momentum_image,
                          "momentum image"));
  FragmentValues values;
  values.version = version;
  {
    ASSIGN_OR_RETURN(const PartReader reader,
                     OpenPart(archive.fs(), theta, files.theta_image));
    values.theta.resize(static_cast<size_t>(reader.header().elements));
    values.momentum.resize(values.theta.size());
  }
  RETURN_IF_ERROR(ReadPartValues(archive.fs(), theta, files.theta_image,
                                 fragment, absl::MakeSpan(values.theta)));
  RETURN_IF_ERROR(ReadPartValues(archive.fs(), momentum, files.momentum_image,
                                 fragment, absl::MakeSpan(values.momentum)));
  const Digest digest = DigestOfValues(values.theta);
  if (digest != archive.DigestOf(fragment, version)) {
    return absl::DataLossError(
        absl::StrCat(theta, " holds theta ", digest.Short(),
                     ", which is not what was published as version ", version));
  }
  return values;
}

absl::StatusOr<FoldResult> FoldRound(RunArchive& archive,
                                     const RoundRecord& round,
                                     const std::set<std::string>& without,
                                     FragmentValues* values) {
  const RoundClosed& closed = *round.closed;
  std::vector<PartReader> readers;
  readers.reserve(closed.members.size());
  std::vector<FoldMember> members;
  for (const RoundMember& member : closed.members) {
    if (without.count(member.worker) != 0) continue;
    ASSIGN_OR_RETURN(PartReader reader, archive.spools().OpenComplete(
                                            closed.fragment, closed.round,
                                            member.worker, member.digest));
    readers.push_back(std::move(reader));
    FoldMember fold_member;
    fold_member.worker = member.worker;
    fold_member.weight = member.weight;
    fold_member.update = &readers.back();
    const auto update = round.updates.find(member.worker);
    if (update != round.updates.end()) {
      fold_member.max_abs = update->second.max_abs;
    }
    members.push_back(fold_member);
  }
  if (members.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("round ", closed.round, " has no other update to fold"));
  }
  // The journal does not tell the downlink's codec, the blob does.
  ASSIGN_OR_RETURN(const PartReader blob,
                   OpenBlob(archive, closed.fragment, values->version + 1));
  OuterSettings outer;
  outer.lr = static_cast<float>(closed.outer_lr);
  outer.momentum = static_cast<float>(closed.outer_momentum);
  outer.nesterov = closed.nesterov;
  const std::vector<MergeTensor>& tensors =
      archive.created().fragments[closed.fragment].tensors;
  if (closed.merge != MergeRule::kMean && tensors.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "round ", closed.round, " was folded by ", MergeRuleName(closed.merge),
        ", and the run was created by a build whose journal does not say where "
        "tensors begin: it cannot be folded again here"));
  }
  NullFile files[3];
  FoldOutput output;
  output.blob = &files[0];
  output.theta_image = &files[1];
  output.momentum_image = &files[2];
  ASSIGN_OR_RETURN(
      const FoldResult result,
      Fold(closed.fragment, members, outer, blob.header().codec,
           absl::MakeSpan(values->theta), absl::MakeSpan(values->momentum),
           output, {closed.merge, tensors}));
  ++values->version;
  return result;
}

absl::Status ApplyBlob(const RunArchive& archive, uint32_t fragment,
                       FragmentValues* values) {
  const uint64_t version = values->version + 1;
  ASSIGN_OR_RETURN(const PartReader blob, OpenBlob(archive, fragment, version));
  if (blob.header().elements != static_cast<int64_t>(values->theta.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the update blob of version ", version, " has ", blob.header().elements,
        " elements, theta ", values->theta.size()));
  }
  std::vector<float> change(static_cast<size_t>(kFrameElements));
  for (int64_t i = 0; i < blob.frames(); ++i) {
    const absl::Span<float> frame = absl::MakeSpan(change).first(
        static_cast<size_t>(blob.FrameElements(i)));
    RETURN_IF_ERROR(blob.ReadFrame(i, frame));
    ApplyChange(frame, absl::MakeSpan(values->theta)
                           .subspan(static_cast<size_t>(i * kFrameElements),
                                    frame.size()));
  }
  values->version = version;
  const Digest digest = DigestOfValues(values->theta);
  const std::optional<Digest> published = archive.DigestOf(fragment, version);
  if (digest == published) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("the update blob of version ", version, " leads to theta ",
                   digest.Short(), ", published was ", published->Short()));
}

absl::StatusOr<FragmentValues> ValuesAt(RunArchive& archive, uint32_t fragment,
                                        uint64_t version) {
  if (version > archive.state().fragments[fragment].version) {
    return absl::NotFoundError(
        absl::StrCat("there is no version ", version, ": the newest is ",
                     archive.state().fragments[fragment].version));
  }
  absl::Status last = absl::NotFoundError(absl::StrCat(
      "no image that is kept leads to version ", version, " of fragment ",
      fragment, ": dilococtl inspect lists those that are"));
  for (uint64_t image = version + 1; image-- > 0;) {
    absl::StatusOr<FragmentValues> values = LoadImage(archive, fragment, image);
    while (values.ok() && values->version < version) {
      const RoundRecord& round =
          *archive.RoundOfVersion(fragment, values->version + 1);
      const absl::StatusOr<FoldResult> folded =
          FoldRound(archive, round, {}, &*values);
      absl::Status status = folded.status();
      if (status.ok()) status = CheckReproduced(*round.published, *folded);
      if (!status.ok()) values = status;
    }
    if (values.ok()) return values;
    if (!absl::IsNotFound(values.status())) last = values.status();
  }
  return last;
}

}  // namespace diloco

#include "coordinator/offline/salvage.h"

#include <cstdio>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/tensor/part_file.h"
#include "coordinator/store/part_values.h"
#include "coordinator/store/state_dir.h"

namespace diloco {
namespace {

// As far as the updates that are kept lead on from an image.
absl::Status FoldOn(RunArchive& archive, uint32_t fragment, uint64_t newest,
                    FragmentValues* values) {
  while (values->version < newest) {
    const RoundRecord* const round =
        archive.RoundOfVersion(fragment, values->version + 1);
    if (round == nullptr) return absl::NotFoundError("no round");
    FragmentValues next = *values;
    ASSIGN_OR_RETURN(const FoldResult folded,
                     FoldRound(archive, *round, {}, &next));
    RETURN_IF_ERROR(CheckReproduced(*round->published, folded));
    *values = std::move(next);
  }
  return absl::OkStatus();
}

// Versions of the images in a state directory, by their names.
std::set<uint64_t> ImagesIn(FileSystem* fs, const std::string& dir,
                            uint32_t fragment) {
  std::set<uint64_t> versions;
  const absl::StatusOr<std::vector<std::string>> names =
      fs->List(JoinPath(dir, kImageDir));
  if (!names.ok()) return versions;
  for (const std::string& name : *names) {
    absl::string_view rest = name;
    uint64_t version = 0;
    if (absl::ConsumePrefix(&rest, absl::StrFormat("f%02d-v", fragment)) &&
        absl::ConsumeSuffix(&rest, ".theta") &&
        absl::SimpleAtoi(rest, &version)) {
      versions.insert(version);
    }
  }
  return versions;
}

// Checked by the checksums that the file itself carries.
absl::StatusOr<std::vector<float>> ReadWhole(FileSystem* fs,
                                             const std::string& path,
                                             uint32_t fragment,
                                             uint64_t bytes) {
  ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, fs->OpenForRead(path));
  FileRef ref;
  ASSIGN_OR_RETURN(ref.digest, BlockDigestOfFile(*file));
  ASSIGN_OR_RETURN(ref.bytes, file->Size());
  if (ref.bytes != bytes) {
    return absl::DataLossError(absl::StrCat(
        path, " has ", ref.bytes, " bytes, the run's first image ", bytes));
  }
  ASSIGN_OR_RETURN(const PartReader reader,
                   PartReader::Open(std::move(file), path));
  std::vector<float> values(static_cast<size_t>(reader.header().elements));
  RETURN_IF_ERROR(
      ReadPartValues(fs, path, ref, fragment, absl::MakeSpan(values)));
  return values;
}

}  // namespace

absl::StatusOr<Salvaged> Salvage(RunArchive& archive, uint32_t fragment,
                                 const std::string& damaged) {
  Salvaged salvaged;
  const uint64_t newest = archive.state().fragments[fragment].version;
  for (uint64_t image = newest + 1; image-- > 0;) {
    absl::StatusOr<FragmentValues> values = LoadImage(archive, fragment, image);
    if (!values.ok()) continue;
    // What stops it is what is lost.
    FoldOn(archive, fragment, newest, &*values).IgnoreError();
    salvaged.values = *std::move(values);
    return salvaged;
  }
  const uint64_t bytes =
      archive.created().fragments[fragment].theta_image.bytes;
  const std::set<uint64_t> images = ImagesIn(archive.fs(), damaged, fragment);
  for (auto image = images.rbegin(); image != images.rend(); ++image) {
    const std::string path =
        JoinPath(JoinPath(damaged, kImageDir),
                 absl::StrFormat("f%02d-v%06d", fragment, *image));
    absl::StatusOr<std::vector<float>> theta =
        ReadWhole(archive.fs(), absl::StrCat(path, ".theta"), fragment, bytes);
    absl::StatusOr<std::vector<float>> momentum = ReadWhole(
        archive.fs(), absl::StrCat(path, ".momentum"), fragment, bytes);
    if (!theta.ok() || !momentum.ok()) continue;
    salvaged.values.version = newest;
    salvaged.values.theta = *std::move(theta);
    salvaged.values.momentum = *std::move(momentum);
    salvaged.later_image = *image;
    return salvaged;
  }
  return absl::NotFoundError(absl::StrCat(
      "no image of fragment ", fragment, " in ", JoinPath(damaged, kImageDir),
      " can be read, neither of the versions up to ", newest,
      ", of which the journal tells, nor of a later one: restore a backup, or "
      "begin another run"));
}

}  // namespace diloco

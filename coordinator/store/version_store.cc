#include "coordinator/store/version_store.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "coordinator/store/part_values.h"
#include "coordinator/store/state_dir.h"

namespace diloco {
namespace {

constexpr char kTemporary[] = ".tmp";

std::string FileName(uint32_t fragment, uint64_t version,
                     absl::string_view suffix) {
  return absl::StrFormat("f%02d-v%06d%s", fragment, version, suffix);
}

uint64_t BytesOf(const std::vector<VersionStore::Step>& steps) {
  uint64_t bytes = 0;
  for (const VersionStore::Step& step : steps) bytes += step.file.bytes;
  return bytes;
}

}  // namespace

VersionStore::VersionStore(FileSystem* fs, std::string dir)
    : fs_(fs), dir_(std::move(dir)) {}

std::string VersionStore::BlobPath(Key key) const {
  return JoinPath(JoinPath(dir_, kBlobDir),
                  FileName(key.first, key.second, ".blob"));
}

std::string VersionStore::ThetaPath(Key key) const {
  return JoinPath(JoinPath(dir_, kImageDir),
                  FileName(key.first, key.second, ".theta"));
}

std::string VersionStore::MomentumPath(Key key) const {
  return JoinPath(JoinPath(dir_, kImageDir),
                  FileName(key.first, key.second, ".momentum"));
}

absl::StatusOr<VersionStore::Pending> VersionStore::Create(uint32_t fragment,
                                                           uint64_t version,
                                                           bool with_blob,
                                                           bool with_image) {
  const auto create = [this](const std::string& path)
      -> absl::StatusOr<std::unique_ptr<WritableFile>> {
    RETURN_IF_ERROR(fs_->CreateDirs(DirName(path)));
    ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                     fs_->OpenForWrite(absl::StrCat(path, kTemporary)));
    RETURN_IF_ERROR(file->Truncate(0));
    return file;
  };
  const Key key = {fragment, version};
  Pending pending;
  pending.fragment = fragment;
  pending.version = version;
  if (with_blob) {
    ASSIGN_OR_RETURN(pending.blob, create(BlobPath(key)));
  }
  if (with_image) {
    ASSIGN_OR_RETURN(pending.theta_image, create(ThetaPath(key)));
    ASSIGN_OR_RETURN(pending.momentum_image, create(MomentumPath(key)));
  }
  return pending;
}

void VersionStore::Abandon(uint32_t fragment, uint64_t version) {
  const Key key = {fragment, version};
  for (const std::string& path :
       {BlobPath(key), ThetaPath(key), MomentumPath(key)}) {
    fs_->Remove(absl::StrCat(path, kTemporary)).IgnoreError();
  }
}

absl::Status VersionStore::Commit(Pending pending) {
  const Key key = {pending.fragment, pending.version};
  const std::pair<WritableFile*, std::string> files[] = {
      {pending.theta_image.get(), ThetaPath(key)},
      {pending.momentum_image.get(), MomentumPath(key)},
      {pending.blob.get(), BlobPath(key)}};
  for (const auto& [file, path] : files) {
    if (file != nullptr) RETURN_IF_ERROR(file->Sync());
  }
  for (const auto& [file, path] : files) {
    if (file == nullptr) continue;
    RETURN_IF_ERROR(fs_->Rename(absl::StrCat(path, kTemporary), path));
  }
  if (pending.theta_image != nullptr || pending.momentum_image != nullptr) {
    RETURN_IF_ERROR(fs_->SyncDir(DirName(ThetaPath(key))));
  }
  if (pending.blob != nullptr) {
    RETURN_IF_ERROR(fs_->SyncDir(DirName(BlobPath(key))));
  }
  return absl::OkStatus();
}

absl::Status VersionStore::DropIfGood(std::unique_ptr<WritableFile>& pending,
                                      const std::string& path,
                                      const Digest& digest) {
  if (pending == nullptr || !fs_->Exists(path)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file,
                   fs_->OpenForRead(path));
  const absl::StatusOr<Digest> there = BlockDigestOfFile(*file);
  if (!there.ok() || *there != digest) {
    DILOCO_LOG(WARNING)
        << "a published file is damaged and is written anew path=" << path;
    return absl::OkStatus();
  }
  pending.reset();
  return fs_->Remove(absl::StrCat(path, kTemporary));
}

absl::Status VersionStore::Restore(Pending pending) {
  const Key key = {pending.fragment, pending.version};
  Entry entry;
  {
    MutexLock lock(&mu_);
    const auto found = entries_.find(key);
    DILOCO_CHECK(found != entries_.end());
    entry = found->second;
  }
  RETURN_IF_ERROR(DropIfGood(pending.blob, BlobPath(key), entry.blob.digest));
  RETURN_IF_ERROR(DropIfGood(pending.theta_image, ThetaPath(key),
                             entry.theta_image.digest));
  RETURN_IF_ERROR(DropIfGood(pending.momentum_image, MomentumPath(key),
                             entry.momentum_image.digest));
  return Commit(std::move(pending));
}

void VersionStore::Learn(const Fact& fact) {
  MutexLock lock(&mu_);
  if (const auto* created = std::get_if<RunCreated>(&fact)) {
    for (uint32_t f = 0; f < created->fragments.size(); ++f) {
      const RunCreated::Fragment& files = created->fragments[f];
      entries_[{f, 0}] = {FileRef{}, files.theta_image, files.momentum_image,
                          files.digest};
    }
  } else if (const auto* lineage = std::get_if<LineageStarted>(&fact)) {
    for (uint32_t f = 0; f < lineage->fragments.size(); ++f) {
      const LineageStarted::Fragment& begin = lineage->fragments[f];
      // Later ones are of the lineage before.
      entries_.erase(entries_.upper_bound({f, begin.version}),
                     entries_.upper_bound({f, UINT64_MAX}));
      Entry& entry = entries_[{f, begin.version}];
      entry.theta_image = begin.theta_image;
      entry.momentum_image = begin.momentum_image;
      entry.fragment_digest = begin.digest;
    }
  } else if (const auto* published = std::get_if<VersionPublished>(&fact)) {
    entries_[{published->fragment, published->version}] = {
        published->blob, published->theta_image, published->momentum_image,
        published->digest};
  }
}

std::optional<VersionStore::Found> VersionStore::FindLocked(
    const Digest& digest) const {
  for (const auto& [key, entry] : entries_) {
    const std::pair<const FileRef&, std::string> files[] = {
        {entry.blob, BlobPath(key)},
        {entry.theta_image, ThetaPath(key)},
        {entry.momentum_image, MomentumPath(key)}};
    for (const auto& [file, path] : files) {
      if (file.bytes > 0 && file.digest == digest && fs_->Exists(path)) {
        return Found{path, file.bytes};
      }
    }
  }
  return std::nullopt;
}

std::optional<VersionStore::Found> VersionStore::Find(
    const Digest& digest) const {
  MutexLock lock(&mu_);
  return FindLocked(digest);
}

std::optional<VersionStore::Found> VersionStore::FindAndPin(
    const Digest& digest, Instant until) {
  MutexLock lock(&mu_);
  std::optional<Found> found = FindLocked(digest);
  if (found.has_value()) Pin(digest, until);
  return found;
}

bool VersionStore::HasImage(Key key, const Entry& entry) const {
  return entry.theta_image.bytes > 0 && entry.momentum_image.bytes > 0 &&
         fs_->Exists(ThetaPath(key)) && fs_->Exists(MomentumPath(key));
}

std::optional<std::vector<VersionStore::Step>> VersionStore::BlobChain(
    uint32_t fragment, uint64_t from, uint64_t to) const {
  std::vector<Step> steps;
  for (uint64_t version = from + 1; version <= to; ++version) {
    const auto entry = entries_.find({fragment, version});
    if (entry == entries_.end() || entry->second.blob.bytes == 0 ||
        !fs_->Exists(BlobPath(entry->first))) {
      return std::nullopt;
    }
    steps.push_back({/*image=*/false, version, entry->second.blob,
                     entry->second.fragment_digest});
  }
  return steps;
}

absl::StatusOr<std::vector<VersionStore::Step>> VersionStore::Resolve(
    uint32_t fragment, std::optional<uint64_t> have, uint64_t to,
    Instant pinned_until) {
  MutexLock lock(&mu_);
  if (entries_.count({fragment, to}) == 0) {
    return absl::NotFoundError(
        absl::StrCat("fragment ", fragment, " has no version ", to, " here"));
  }
  std::optional<std::vector<Step>> best;
  if (have.has_value() && *have <= to) best = BlobChain(fragment, *have, to);
  // From the newest image on: an older one only makes the chain longer.
  for (uint64_t version = to + 1; version-- > 0;) {
    const auto entry = entries_.find({fragment, version});
    if (entry == entries_.end()) break;
    if (!HasImage(entry->first, entry->second)) continue;
    std::optional<std::vector<Step>> chain = BlobChain(fragment, version, to);
    if (!chain.has_value()) break;
    chain->insert(chain->begin(),
                  {/*image=*/true, version, entry->second.theta_image,
                   entry->second.fragment_digest});
    if (!best.has_value() || BytesOf(*chain) < BytesOf(*best)) {
      best = std::move(chain);
    }
    break;
  }
  if (best.has_value()) {
    for (const Step& step : *best) Pin(step.file.digest, pinned_until);
    return *std::move(best);
  }
  return absl::NotFoundError(absl::StrCat(
      "nothing that is kept leads to version ", to, " of fragment ", fragment,
      have.has_value() ? absl::StrCat(" from version ", *have)
                       : std::string()));
}

absl::Status VersionStore::LoadImage(Key key, const Entry& entry,
                                     absl::Span<float> theta,
                                     absl::Span<float> momentum) {
  const std::pair<std::string, std::pair<FileRef, absl::Span<float>>> files[] =
      {{ThetaPath(key), {entry.theta_image, theta}},
       {MomentumPath(key), {entry.momentum_image, momentum}}};
  for (const auto& [path, what] : files) {
    const absl::Status status =
        ReadPartValues(fs_, path, what.first, key.first, what.second);
    if (status.ok()) continue;
    if (absl::IsInvalidArgument(status)) {
      // Its content is wrong, and stays wrong.
      RETURN_IF_ERROR(fs_->Rename(path, absl::StrCat(path, ".broken")));
    }
    return status;
  }
  return absl::OkStatus();
}

uint64_t VersionStore::images_passed_over() const {
  MutexLock lock(&mu_);
  return images_passed_over_;
}

absl::StatusOr<uint64_t> VersionStore::LoadNewestImage(
    uint32_t fragment, uint64_t at_most, absl::Span<float> theta,
    absl::Span<float> momentum) {
  std::map<Key, Entry> images;
  {
    MutexLock lock(&mu_);
    const auto end = entries_.upper_bound({fragment, at_most});
    for (auto it = entries_.lower_bound({fragment, 0}); it != end; ++it) {
      if (it->second.theta_image.bytes > 0) images.insert(*it);
    }
  }
  for (auto it = images.rbegin(); it != images.rend(); ++it) {
    const auto& [key, entry] = *it;
    if (!fs_->Exists(ThetaPath(key)) && !fs_->Exists(MomentumPath(key))) {
      continue;  // Retention took it.
    }
    const absl::Status status = LoadImage(key, entry, theta, momentum);
    if (status.ok()) return key.second;
    {
      MutexLock lock(&mu_);
      ++images_passed_over_;
    }
    DILOCO_LOG(WARNING) << "image cannot be used, trying the one before"
                        << " fragment=" << fragment << " version=" << key.second
                        << " error=\"" << status.message() << "\"";
  }
  return absl::DataLossError(
      absl::StrCat("no good image of fragment ", fragment, " up to version ",
                   at_most, " in ", JoinPath(dir_, kImageDir),
                   ": restore the state directory from a backup"));
}

}  // namespace diloco

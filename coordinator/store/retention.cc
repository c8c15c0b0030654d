// What VersionStore removes, and what readers hold.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/store/version_store.h"

namespace diloco {

void VersionStore::Pin(const Digest& digest, Instant until) {
  Instant& pin = pins_[digest];
  pin = std::max(pin, until);
}

bool VersionStore::IsPinned(const FileRef& file) const {
  return file.bytes > 0 && pins_.count(file.digest) != 0;
}

void VersionStore::DropPins(Instant now) {
  std::erase_if(pins_, [now](const auto& pin) { return pin.second <= now; });
}

void VersionStore::DoomImage(Key key, Entry& entry,
                             std::vector<std::string>* doomed) {
  if (entry.theta_image.bytes == 0 || IsPinned(entry.theta_image) ||
      IsPinned(entry.momentum_image)) {
    return;
  }
  doomed->push_back(ThetaPath(key));
  doomed->push_back(MomentumPath(key));
  entry.theta_image = entry.momentum_image = FileRef{};
}

void VersionStore::DoomBlob(Key key, Entry& entry,
                            std::vector<std::string>* doomed) {
  if (entry.blob.bytes == 0 || IsPinned(entry.blob)) return;
  doomed->push_back(BlobPath(key));
  entry.blob = FileRef{};
}

absl::Status VersionStore::RemoveFiles(const std::vector<std::string>& doomed) {
  for (const std::string& path : doomed) {
    if (fs_->Exists(path)) RETURN_IF_ERROR(fs_->Remove(path));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> VersionStore::Prune(uint32_t fragment, int keep_images,
                                             const KeptImages& kept,
                                             Instant now) {
  std::vector<std::string> doomed;
  std::optional<uint64_t> oldest;
  {
    MutexLock lock(&mu_);
    DropPins(now);
    const auto begin = entries_.lower_bound({fragment, 0});
    int images = 0;
    for (auto it = entries_.upper_bound({fragment, UINT64_MAX});
         it != begin && images < keep_images;) {
      --it;
      if (!HasImage(it->first, it->second)) continue;
      oldest = it->first.second;
      ++images;
    }
    if (!oldest.has_value()) {
      return absl::NotFoundError(
          absl::StrCat("fragment ", fragment, " has no image"));
    }
    const auto end = entries_.lower_bound({fragment, *oldest});
    for (auto it = begin; it != end;) {
      auto& [key, entry] = *it;
      DoomBlob(key, entry, &doomed);
      if (!kept.Has(key.second)) DoomImage(key, entry, &doomed);
      const bool empty = entry.blob.bytes == 0 && entry.theta_image.bytes == 0;
      it = empty ? entries_.erase(it) : std::next(it);
    }
    // The oldest image stands in for its own blob.
    DoomBlob(end->first, end->second, &doomed);
  }
  RETURN_IF_ERROR(RemoveFiles(doomed));
  return *oldest;
}

absl::StatusOr<std::optional<uint64_t>> VersionStore::DropOldestImage(
    uint32_t fragment, int keep_images, const KeptImages& spared, Instant now) {
  std::vector<std::string> doomed;
  std::optional<uint64_t> dropped;
  {
    MutexLock lock(&mu_);
    DropPins(now);
    std::vector<uint64_t> images;
    for (auto it = entries_.lower_bound({fragment, 0});
         it != entries_.upper_bound({fragment, UINT64_MAX}); ++it) {
      if (HasImage(it->first, it->second)) images.push_back(it->first.second);
    }
    for (size_t i = 0; i + keep_images < images.size(); ++i) {
      if (spared.Has(images[i])) continue;
      const Key key = {fragment, images[i]};
      DoomImage(key, entries_[key], &doomed);
      if (doomed.empty()) continue;  // It has a reader.
      dropped = images[i];
      // An older image that stays still leads on by blobs up to here,
      // to versions that nobody asks for.
      const auto end = entries_.upper_bound({fragment, images[i + 1]});
      for (auto it = entries_.lower_bound({fragment, 0}); it != end; ++it) {
        DoomBlob(it->first, it->second, &doomed);
      }
      break;
    }
  }
  RETURN_IF_ERROR(RemoveFiles(doomed));
  return dropped;
}

}  // namespace diloco

// Versions on disk: fp32 images (theta and momentum) and update blobs, all
// immutable part files named by fragment and version and addressed by digest:
//   images/f00-v000008.theta  images/f00-v000008.momentum
//   blobs/f00-v000009.blob
// Files that a reader holds open stay readable when retention removes them;
// pinned ones stay, so that a reader whose connection broke can go on.
#ifndef COORDINATOR_STORE_VERSION_STORE_H_
#define COORDINATOR_STORE_VERSION_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/io/file_system.h"
#include "common/tensor/part_file.h"
#include "coordinator/core/facts.h"

namespace diloco {

// Thread-safe.
// The images that stay, however old: the first one at or after each multiple of
// `every`, where a fragment's images are `apart` versions apart. 0: none.
struct KeptImages {
  uint64_t every = 0;
  uint64_t apart = 1;

  bool Has(uint64_t version) const {
    return every != 0 && version % every < apart;
  }
};

class VersionStore {
 public:
  VersionStore(FileSystem* fs, std::string dir);

  // Files being written for a version: *.tmp until Publish.
  struct Pending {
    uint32_t fragment = 0;
    uint64_t version = 0;
    std::unique_ptr<WritableFile> blob;         // Null for version 0.
    std::unique_ptr<WritableFile> theta_image;  // Null without an image.
    std::unique_ptr<WritableFile> momentum_image;
  };
  // A file that an attempt before left is overwritten.
  absl::StatusOr<Pending> Create(uint32_t fragment, uint64_t version,
                                 bool with_blob, bool with_image);
  // Removes what Create left of a version that will not be committed, as far as
  // that goes.
  void Abandon(uint32_t fragment, uint64_t version);
  // Fsyncs, renames to the final names, fsyncs the directories. After an error
  // the version may be created again, but not after DATA_LOSS: a failed fsync
  // is final.
  absl::Status Commit(Pending pending);
  // The same for a registered version that was folded again: files that are
  // there with the registered digest are left alone.
  absl::Status Restore(Pending pending);

  // Makes the files that the fact names known to Find; in order, on recovery
  // and live. A FileRef of 0 bytes is no file; files that retention removed
  // long ago may come again.
  void Learn(const Fact& fact);

  struct Found {
    std::string path;
    uint64_t bytes = 0;
  };
  // Absent also when the file is gone.
  std::optional<Found> Find(const Digest& digest) const;
  // The same for a reader: retention leaves the file alone until then.
  std::optional<Found> FindAndPin(const Digest& digest, Instant until);

  struct Step {
    bool image = false;
    uint64_t version = 0;
    FileRef file;
    Digest result_digest;
  };
  // The cheaper chain from `have` (absent: nothing) to `to`, pinned until then;
  // NOT_FOUND when retention removed what it needs.
  absl::StatusOr<std::vector<Step>> Resolve(uint32_t fragment,
                                            std::optional<uint64_t> have,
                                            uint64_t to, Instant pinned_until);

  // The newest image whose two files are present and match their digests, not
  // newer than `at_most`; a damaged one is renamed *.broken with a warning and
  // the one before is taken. Fills theta and momentum. DATA_LOSS when there is
  // none; both are undefined then.
  absl::StatusOr<uint64_t> LoadNewestImage(uint32_t fragment, uint64_t at_most,
                                           absl::Span<float> theta,
                                           absl::Span<float> momentum);

  // Images that LoadNewestImage had to pass over, for operators.
  uint64_t images_passed_over() const;

  // Keeps the newest `keep_images` images, the blobs after the oldest of them,
  // the images of `kept`, and what is pinned beyond `now`. Returns the version
  // of the oldest of the newest images; NOT_FOUND without images.
  absl::StatusOr<uint64_t> Prune(uint32_t fragment, int keep_images,
                                 const KeptImages& kept, Instant now);

  // Removes the oldest image that is not pinned, and the blobs that only led on
  // from it, for space: its version. The newest `keep_images` stay, and those
  // of `spared`; absent when that is all there is.
  absl::StatusOr<std::optional<uint64_t>> DropOldestImage(
      uint32_t fragment, int keep_images, const KeptImages& spared,
      Instant now);

 private:
  struct Entry {
    FileRef blob, theta_image, momentum_image;
    Digest fragment_digest;
  };
  using Key = std::pair<uint32_t, uint64_t>;  // Fragment, version.

  std::string BlobPath(Key key) const;
  std::string ThetaPath(Key key) const;
  std::string MomentumPath(Key key) const;
  // Drops the pending file when `path` is there with this digest.
  absl::Status DropIfGood(std::unique_ptr<WritableFile>& pending,
                          const std::string& path, const Digest& digest);
  bool HasImage(Key key, const Entry& entry) const;
  // The blobs from `from` + 1 to `to`; absent when one is not there.
  std::optional<std::vector<Step>> BlobChain(uint32_t fragment, uint64_t from,
                                             uint64_t to) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status LoadImage(Key key, const Entry& entry, absl::Span<float> theta,
                         absl::Span<float> momentum);
  std::optional<Found> FindLocked(const Digest& digest) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Pin(const Digest& digest, Instant until)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsPinned(const FileRef& file) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropPins(Instant now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Forget the files and name them in `doomed`, unless they are pinned.
  void DoomImage(Key key, Entry& entry, std::vector<std::string>* doomed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DoomBlob(Key key, Entry& entry, std::vector<std::string>* doomed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RemoveFiles(const std::vector<std::string>& doomed);

  FileSystem* const fs_;
  const std::string dir_;
  mutable Mutex mu_;
  std::map<Key, Entry> entries_ ABSL_GUARDED_BY(mu_);
  std::map<Digest, Instant> pins_ ABSL_GUARDED_BY(mu_);
  uint64_t images_passed_over_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace diloco

#endif  // COORDINATOR_STORE_VERSION_STORE_H_

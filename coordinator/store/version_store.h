// Versions on disk: fp32 images (theta and momentum) and update blobs, all
// immutable part files named by fragment and version and addressed by digest:
//   images/f00-v000008.theta  images/f00-v000008.momentum
//   blobs/f00-v000009.blob
// Files that a reader holds open stay readable when retention removes them.
#ifndef COORDINATOR_STORE_VERSION_STORE_H_
#define COORDINATOR_STORE_VERSION_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/io/file_system.h"
#include "common/tensor/part_file.h"
#include "coordinator/core/facts.h"

namespace diloco {

// Thread-safe.
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
  absl::StatusOr<Pending> Create(uint32_t fragment, uint64_t version,
                                 bool with_blob, bool with_image);
  // Fsyncs, renames to the final names, fsyncs the directories.
  absl::Status Commit(Pending pending);

  // Makes files known to Find; called for VersionPublished and RunCreated
  // facts, on recovery and live. `round` is the round that gave the version.
  void Register(uint32_t fragment, uint64_t version, const FileRef& blob,
                const FileRef& theta_image, const FileRef& momentum_image,
                const Digest& fragment_digest);

  struct Found {
    std::string path;
    uint64_t bytes = 0;
  };
  std::optional<Found> Find(const Digest& digest) const;

  struct Step {
    bool image = false;
    uint64_t version = 0;
    FileRef file;
    Digest result_digest;
  };
  // The cheaper chain from `have` (absent: nothing) to `to`; NOT_FOUND when
  // retention removed what it needs.
  absl::StatusOr<std::vector<Step>> Resolve(uint32_t fragment,
                                            std::optional<uint64_t> have,
                                            uint64_t to) const;

  // The newest image whose two files are present and match their digests, not
  // newer than `at_most`; a damaged one is renamed *.broken with a warning and
  // the one before is taken. Fills theta and momentum.
  absl::StatusOr<uint64_t> LoadNewestImage(uint32_t fragment, uint64_t at_most,
                                           absl::Span<float> theta,
                                           absl::Span<float> momentum);

  // Keeps the newest `keep_images` images, the blobs after the oldest of them,
  // and every image with version % keep_every == 0. Returns the version of the
  // oldest image that recovery may need.
  absl::StatusOr<uint64_t> Prune(uint32_t fragment, int keep_images,
                                 uint64_t keep_every);

 private:
  struct Entry {
    FileRef blob, theta_image, momentum_image;
    Digest fragment_digest;
  };
  FileSystem* const fs_;
  const std::string dir_;
  mutable Mutex mu_;
  std::map<std::pair<uint32_t, uint64_t>, Entry> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace diloco

#endif  // COORDINATOR_STORE_VERSION_STORE_H_

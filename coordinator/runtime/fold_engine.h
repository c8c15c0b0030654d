// Holds theta and momentum in memory and moves them from version to version:
// folds a closed round from its spools, writes update blob and images, and
// rebuilds any version after a restart from image + closed rounds + spools.
// Used by CoordinatorImpl, on its fold thread and during recovery.
#ifndef COORDINATOR_RUNTIME_FOLD_ENGINE_H_
#define COORDINATOR_RUNTIME_FOLD_ENGINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/threads.h"
#include "common/io/file_system.h"
#include "common/tensor/layout.h"
#include "coordinator/core/machine.h"
#include "coordinator/store/spool.h"
#include "coordinator/store/version_store.h"

namespace diloco {

// One thread at a time.
class FoldEngine {
 public:
  struct Options {
    FileSystem* fs = nullptr;
    Threads* threads = Threads::Real();
    VersionStore* versions = nullptr;  // Not owned.
    SpoolStore* spools = nullptr;      // Not owned.
    const Layout* layout = nullptr;    // Not owned.
    Codec codec_down = Codec::kFp32;
    uint64_t image_every = 8;
    int keep_images = 5;
    uint64_t keep_every = 50;
  };
  explicit FoldEngine(Options options);

  // theta(0) from `initial`, momentum zero; writes the images of version 0 and
  // returns the run's first fact but for run, lineage and digests of settings.
  absl::StatusOr<RunCreated> CreateRun(
      const std::function<absl::Status(absl::Span<float>)>& initial);

  // Tells the engine what the journal says; in order, on recovery and live.
  // Puts the file of a refused update aside as evidence.
  void Learn(const Fact& fact);

  // Brings memory to `version`: newest good image, then the closed rounds after
  // it again from their spools. Theta, blob and images are compared with what
  // was published before a file is touched (DATA_LOSS when one differs); files
  // that are good stay as they are.
  absl::Status Rebuild(uint32_t fragment, uint64_t version);

  // Folds the order; files are durable when this returns. RESOURCE_EXHAUSTED:
  // the disk is full, try again later. Other errors name the round and the
  // member's file, and come again until that file is right.
  absl::StatusOr<VersionPublished> Run(uint32_t fragment,
                                       const FoldOrder& order);

  // Removes what recovery and readers no longer need.
  void Prune(uint32_t fragment, Instant now);
  // The same for every fragment, and then the oldest images one by one, those
  // of keep.every after all others, until `enough` says so or only what a start
  // needs is left: the newest image and the one before it.
  void MakeRoom(const std::function<bool()>& enough, Instant now);

 private:
  void PruneSpools(uint32_t index, uint64_t round, size_t evidence);
  absl::Status ReserveFiles(uint32_t index,
                            const VersionStore::Pending& pending);
  KeptImages Kept() const;
  // MakeRoom without the images of `spared`.
  void DropImages(const KeptImages& spared, const std::function<bool()>& enough,
                  Instant now);

  struct Published {
    RoundClosed closed;
    VersionPublished version;
  };
  struct Fragment {
    uint64_t version = 0;
    bool valid = false;                     // Memory holds `version`.
    std::optional<RoundClosed> closed;      // Not yet published.
    std::map<uint64_t, Published> history;  // By version.
    // Largest magnitude of each update, by round and worker: known from the
    // screen on arrival, so that a fold need not read everything twice.
    std::map<std::pair<uint64_t, std::string>, float> max_abs;
    std::vector<uint64_t> images;  // Versions, ascending.
  };

  // `recorded` is what was published of this version; null: it is new.
  absl::StatusOr<VersionPublished> FoldInto(uint32_t index,
                                            const RoundClosed& closed,
                                            uint64_t version,
                                            const VersionPublished* recorded);

  absl::Span<float> RangeOf(uint32_t index, std::vector<float>& flat) const;

  const Options options_;
  std::vector<float> theta_;     // Flat, as in the layout.
  std::vector<float> momentum_;  // Likewise.
  std::vector<Fragment> fragments_;
};

}  // namespace diloco

#endif  // COORDINATOR_RUNTIME_FOLD_ENGINE_H_

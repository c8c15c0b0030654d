// The update blob that a fold writes, on a thread of its own while the next
// tile is computed. Used by fold.cc only.
#ifndef COORDINATOR_AGGREGATE_FOLD_WRITER_H_
#define COORDINATOR_AGGREGATE_FOLD_WRITER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "common/base/threads.h"
#include "common/tensor/part_file.h"
#include "coordinator/aggregate/fold.h"

namespace diloco {

// SHA-256 of the digest blocks of theta: a tile is one block. Hashed in runs of
// tiles, as BlockDigester is fastest with, by whichever thread of the fold has
// nothing else to do. Thread-safe.
class ThetaBlocks {
 public:
  explicit ThetaBlocks(absl::Span<const float> theta);
  // The first `tiles` tiles of theta have their final values.
  void Completed(int64_t tiles);
  // Hashes a run whose tiles are complete, if more than `spare` are; whether it
  // did.
  bool HashRun(int64_t spare = 0);
  Digest Finish() const;  // Once HashRun has returned false to every thread.

 private:
  const absl::Span<const float> theta_;
  std::vector<Digest> blocks_;  // Each run's belong to the thread that took it.
  Mutex mu_;
  int64_t completed_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t taken_ ABSL_GUARDED_BY(mu_) = 0;  // Tiles that threads have taken.
};

// One computing thread uses it:
//   for each tile: NextChange() -> buffer, fill it, finish theta and momentum
//   of the tile, Submit(); at the end Finish().
class FoldWriter {
 public:
  FoldWriter(uint32_t fragment, Codec codec_down, absl::Span<const float> theta,
             WritableFile* blob, Threads* threads);
  ~FoldWriter();

  // The buffer for the change of the next tile; until one is free, hashes theta
  // and waits. An error of an earlier tile's writing shows here.
  absl::StatusOr<absl::Span<float>> NextChange();
  // The change of the next tile is complete, and so is theta.
  void Submit();
  // Waits for all tiles; fills the digests of theta and blob and the blob's
  // size.
  absl::StatusOr<FoldResult> Finish();

 private:
  static constexpr int64_t kBuffers = 8;

  void Run();
  // Waits for tile `tile`, hashing theta meanwhile; false when none will come.
  bool AwaitTile(int64_t tile);
  absl::Span<float> ChangeOf(int64_t tile);
  int64_t TileElements(int64_t tile) const;

  const absl::Span<const float> theta_;
  const int64_t tiles_;
  ThetaBlocks theta_blocks_;
  std::vector<float> changes_;  // Tile t uses buffer t mod kBuffers.

  // The writing thread's until it has ended.
  PartWriter blob_;

  Mutex mu_;
  WaitPoint changed_;
  int64_t submitted_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t written_ ABSL_GUARDED_BY(mu_) = 0;
  bool abandoned_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);

  std::unique_ptr<Threads::Thread> thread_;  // Null once it was joined.
};

}  // namespace diloco

#endif  // COORDINATOR_AGGREGATE_FOLD_WRITER_H_

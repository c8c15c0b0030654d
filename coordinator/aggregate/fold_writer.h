// What a fold writes and hashes, on a thread of its own while the next tile is
// computed. Used by fold.cc only.
#ifndef COORDINATOR_AGGREGATE_FOLD_WRITER_H_
#define COORDINATOR_AGGREGATE_FOLD_WRITER_H_

#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "common/tensor/part_file.h"
#include "coordinator/aggregate/fold.h"

namespace diloco {

// One computing thread uses it:
//   for each tile: NextChange() -> buffer, fill it, finish theta and momentum
//   of the tile, Submit(); at the end Finish().
class FoldWriter {
 public:
  FoldWriter(uint32_t fragment, Codec codec_down, absl::Span<const float> theta,
             absl::Span<const float> momentum, const FoldOutput& output);
  ~FoldWriter();

  // The buffer for the change of the next tile; waits until one is free. An
  // error of an earlier tile's writing shows here.
  absl::StatusOr<absl::Span<float>> NextChange();
  // The change of the next tile is complete, and so is theta and momentum.
  void Submit();
  // Waits for all tiles; fills digests and sizes. mean_norm is not set.
  absl::StatusOr<FoldResult> Finish();

 private:
  static constexpr int64_t kBuffers = 4;

  void Run();
  absl::Status Write(int64_t tile);
  absl::Span<float> ChangeOf(int64_t tile);
  int64_t TileElements(int64_t tile) const;

  const absl::Span<const float> theta_;
  const absl::Span<const float> momentum_;
  const int64_t tiles_;
  std::vector<float> changes_;  // Tile t uses buffer t mod kBuffers.

  // The writing thread's until it has ended.
  PartWriter blob_;
  std::optional<PartWriter> theta_image_;
  std::optional<PartWriter> momentum_image_;
  BlockDigester theta_digest_;

  Mutex mu_;
  CondVar changed_;
  int64_t submitted_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t written_ ABSL_GUARDED_BY(mu_) = 0;
  bool abandoned_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;
};

}  // namespace diloco

#endif  // COORDINATOR_AGGREGATE_FOLD_WRITER_H_

// The fold: mean of the members' updates, outer step, update blob, new theta.
// One linear pass over the fragment, tile by tile (a tile is a frame of 2^18
// elements), members in the order given (worker name); where the merge rule
// looks at the updates, one pass before it (gram_stage.h). Memory does not grow
// with members; the result depends neither on arrival order nor on the CPU.
// Used by coordinator/runtime; the arithmetic is in fold_kernel.h.
//
// Outer step: PyTorch's SGD (DiLoCo, arXiv 2311.08105, algorithm 1; signs as in
// torch.optim.SGD with the mean pseudo-gradient as gradient):
//   mean = sum_i w_i * f_i * delta_i / sum_i w_i    double sums, rounded once;
//                                             f: merge_factors.h, 1 for a mean
//   m    = mu * m + mean                      m starts at 0
//   c    = -(lr * (mean + mu * m))            Nesterov
//   c    = -(lr * m)                          otherwise
//   theta = theta + decode(encode(c))         what every worker applies too
#ifndef COORDINATOR_AGGREGATE_FOLD_H_
#define COORDINATOR_AGGREGATE_FOLD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/threads.h"
#include "common/io/digest.h"
#include "common/io/file_system.h"
#include "common/tensor/layout.h"
#include "common/tensor/part_file.h"
#include "coordinator/aggregate/fold_kernel.h"
#include "coordinator/core/merge_rule.h"

namespace diloco {

// The largest |delta| that a fold takes, 2^96. Momentum and theta then stay
// finite for 2^30 rounds at least, whatever they hold. Screens refuse larger
// ones on arrival.
inline constexpr float kMaxFoldMagnitude = 0x1p96f;

struct FoldMember {
  std::string worker;
  uint64_t weight = 1;
  PartReader* update = nullptr;  // Not owned.
  // Of its values, as PartScreen found; 0: not known, the fold looks first.
  float max_abs = 0;
};

// How members become one update.
struct FoldMerge {
  MergeRule rule = MergeRule::kMean;
  // Of the fragment, in order; kMean reads none.
  absl::Span<const MergeTensor> tensors;
};
// Those of a fragment of a layout.
std::vector<MergeTensor> MergeTensorsOf(const Layout& layout,
                                        uint32_t fragment);

struct FoldResult {
  Digest digest;       // Of theta after the fold.
  Digest blob_digest;  // Of the update blob file.
  uint64_t blob_bytes = 0;
  Digest theta_image_digest;  // Set when image files were given.
  Digest momentum_image_digest;
  uint64_t image_bytes = 0;  // Of each of the two.
  double mean_norm = 0;      // L2 of the merged pseudo-gradient.
};

// Where a fold writes; nothing is synced or renamed here.
struct FoldOutput {
  WritableFile* blob = nullptr;
  WritableFile* theta_image = nullptr;  // Both or neither.
  WritableFile* momentum_image = nullptr;
  // Where the thread that writes comes from.
  Threads* threads = Threads::Real();
};

// Folds `members` (not empty, equal headers) into theta and momentum in place,
// on this thread and one more.
// INVALID_ARGUMENT before anything is changed, naming the worker, when a header
// disagrees with `fragment` and theta's size, a value is beyond
// kMaxFoldMagnitude or not finite, the weights are zero or overflow, the
// tensors are not those of the fragment, or the change would not fit
// `codec_down`. After any later failure (DATA_LOSS: a
// member's frame is damaged; a write error) theta and momentum are undefined:
// the caller reloads them from the newest image.
absl::StatusOr<FoldResult> Fold(uint32_t fragment,
                                absl::Span<const FoldMember> members,
                                const OuterSettings& outer, Codec codec_down,
                                absl::Span<float> theta,
                                absl::Span<float> momentum,
                                const FoldOutput& output,
                                const FoldMerge& merge = {});

// Writes a whole fragment as an fp32 part file (the images of version 0) and
// returns the digest of the file.
absl::StatusOr<Digest> WriteImage(WritableFile* file, uint32_t fragment,
                                  absl::Span<const float> values);

}  // namespace diloco

#endif  // COORDINATOR_AGGREGATE_FOLD_H_

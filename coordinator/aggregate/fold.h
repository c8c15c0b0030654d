// The fold: mean of the members' updates, outer step, update blob, new theta.
// One linear pass over the fragment, tile by tile (a tile is a frame of 2^18
// elements), members in the order given (worker name). Memory does not grow
// with members; the result depends neither on arrival order nor on the CPU.
//
// Outer step: PyTorch's SGD (DiLoCo, arXiv 2311.08105, algorithm 1; signs as in
// torch.optim.SGD with the mean pseudo-gradient as gradient):
//   mean = sum_i w_i * delta_i / sum_i w_i     (double accumulation, rounded
//   once) m    = mu * m + mean                       (m starts at 0) c    =
//   -(lr * (mean + mu * m))  Nesterov;  -(lr * m) otherwise theta = theta +
//   decode(encode(c))          what every worker applies too
#ifndef COORDINATOR_AGGREGATE_FOLD_H_
#define COORDINATOR_AGGREGATE_FOLD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/io/digest.h"
#include "common/io/file_system.h"
#include "common/tensor/part_file.h"

namespace diloco {

struct OuterSettings {
  float lr = 0.7f;
  float momentum = 0.9f;
  bool nesterov = true;
};

// The kernel over one tile; pure. `deltas[i]` are encoded values of member i.
// Writes the change c into `change` and advances `momentum`.
struct FoldInput {
  Codec codec = Codec::kFp16;
  absl::Span<const char> bytes;
  uint64_t weight = 1;
};
void FoldTile(absl::Span<const FoldInput> inputs, const OuterSettings& outer,
              absl::Span<float> momentum, absl::Span<float> change);

// theta[i] += change[i].
void ApplyChange(absl::Span<const float> change, absl::Span<float> theta);

// Which code path FoldTile takes on this CPU, for logs: "avx512f", "avx2", ...
const char* FoldPathName();

struct FoldMember {
  std::string worker;
  uint64_t weight = 1;
  PartReader* update = nullptr;  // Not owned.
};

struct FoldResult {
  Digest digest;       // Of theta after the fold.
  Digest blob_digest;  // Of the update blob file.
  uint64_t blob_bytes = 0;
  Digest theta_image_digest;  // Set when image files were given.
  Digest momentum_image_digest;
  uint64_t image_bytes = 0;  // Of each of the two.
  double mean_norm = 0;      // L2 of the mean pseudo-gradient.
};

// Where a fold writes; nothing is synced or renamed here.
struct FoldOutput {
  WritableFile* blob = nullptr;
  WritableFile* theta_image = nullptr;  // Both or neither.
  WritableFile* momentum_image = nullptr;
};

// Folds `members` (not empty, equal headers) into theta and momentum in place.
// INVALID_ARGUMENT before anything is changed when the headers disagree with
// `fragment` and theta's size, or the weighted sum could overflow float32.
// After any later failure (a write error) theta and momentum are undefined:
// the caller reloads them from the newest image.
absl::StatusOr<FoldResult> Fold(uint32_t fragment,
                                absl::Span<const FoldMember> members,
                                const OuterSettings& outer, Codec codec_down,
                                absl::Span<float> theta,
                                absl::Span<float> momentum,
                                const FoldOutput& output);

// Writes a whole fragment as an fp32 part file (the images of version 0) and
// returns the digest of the file.
absl::StatusOr<Digest> WriteImage(WritableFile* file, uint32_t fragment,
                                  absl::Span<const float> values);

}  // namespace diloco

#endif  // COORDINATOR_AGGREGATE_FOLD_H_

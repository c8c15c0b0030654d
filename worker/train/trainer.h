// The trainer seam: one replica of the model, its optimiser and its anchors
// (the last global copy of each fragment). No torch here. The LibTorch
// implementation is torch_trainer.h; tests use a fake with known gradients.
//
// One thread at a time, always the same one (LibTorch's memory grows when steps
// run on fresh threads).
#ifndef WORKER_TRAIN_TRAINER_H_
#define WORKER_TRAIN_TRAINER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/io/digest.h"
#include "common/tensor/layout.h"
#include "common/tensor/part_file.h"

namespace diloco {

// `windows` rows of `ids_per_window` token ids; each row gives
// ids_per_window - 1 predictions.
struct Batch {
  std::vector<int32_t> ids;
  int64_t windows = 0;
  int64_t ids_per_window = 0;
  // One flag per prediction, row after row: 0 leaves it out of loss and
  // gradient. Empty: all count.
  std::vector<uint8_t> counted;
};

struct StepResult {
  double loss = 0;       // Mean cross-entropy, nats per token, before the step.
  double z_loss = 0;     // Mean of the z-loss term; not part of `loss`.
  double grad_norm = 0;  // Before clipping.
  bool skipped = false;  // Non-finite: parameters and moments are untouched.
  uint64_t tokens = 0;   // Predictions that counted.
};

struct LossSum {
  double loss_sum = 0;  // Nats.
  uint64_t tokens = 0;
};

class Trainer {
 public:
  virtual ~Trainer() = default;

  virtual const Layout& layout() const = 0;

  // One optimiser step over the whole batch (in micro-batches, exactly
  // token-weighted), gradients clipped by global norm. A batch in which nothing
  // counts is skipped. INVALID_ARGUMENT for a bad shape or an id outside the
  // vocabulary.
  virtual absl::StatusOr<StepResult> Step(const Batch& batch, double lr) = 0;
  // Loss of the local parameters; no gradient.
  virtual absl::StatusOr<LossSum> Evaluate(const Batch& batch) = 0;
  // The same of the anchors. At any time: nothing else is touched, so that
  // training goes on as it would have.
  virtual absl::StatusOr<LossSum> EvaluateAnchor(const Batch& batch) = 0;

  // Sets anchor and local values of a fragment (elements as in the layout).
  virtual absl::Status Load(uint32_t fragment,
                            absl::Span<const float> values) = 0;
  // Copies anchor - local of a fragment and returns; the copy is independent
  // of later steps. At most one ticket per fragment.
  struct Ticket {
    uint32_t fragment = 0;
  };
  virtual absl::StatusOr<Ticket> Take(uint32_t fragment) = 0;
  // Encodes what was taken, frame by frame, and releases the ticket. The caller
  // finishes the writer. On any thread, also while others are in other calls.
  virtual absl::Status Encode(Ticket ticket, PartWriter& writer) = 0;

  // What becomes of the local values when a change is added to the anchor.
  enum class MergeMode {
    kMix,    // local = mix * local + (1 - mix) * anchor (MixInto).
    kCarry,  // local += change.
  };
  // Applies a decoded update blob. `mix`, 0..1, is the share of the local
  // values that kMix keeps: at 0 they are replaced. All frames are verified
  // first: after an error nothing has changed.
  virtual absl::Status Merge(uint32_t fragment, const PartReader& change,
                             MergeMode mode, float mix) = 0;
  // The same where the new anchor comes whole.
  virtual absl::Status Adopt(uint32_t fragment, absl::Span<const float> values,
                             MergeMode mode, float mix) = 0;

  virtual Digest AnchorDigest(uint32_t fragment) = 0;
  // Copies out, e.g. for export and comparison.
  virtual absl::Status ReadAnchor(uint32_t fragment, absl::Span<float> out) = 0;
  virtual absl::Status ReadLocal(uint32_t fragment, absl::Span<float> out) = 0;

  // Everything a bit-exact continuation needs, as named flat buffers ("local",
  // "anchor", "exp_avg", "exp_avg_sq") plus the optimiser's step count.
  using StateSink = std::function<absl::Status(absl::string_view name,
                                               absl::Span<const float>)>;
  virtual absl::Status ExportState(const StateSink& sink) = 0;
  virtual absl::Status ImportState(absl::string_view name,
                                   absl::Span<const float> values) = 0;
  virtual uint64_t optimizer_steps() const = 0;
  virtual void set_optimizer_steps(uint64_t steps) = 0;
};

}  // namespace diloco

#endif  // WORKER_TRAIN_TRAINER_H_

// A trainer with a mistake whose price tests/experiments knows, planted by the
// test hook DILOCO_TEST_MISTAKE of `diloco-worker simulate`.
#ifndef WORKER_SIMULATE_MISTAKEN_TRAINER_H_
#define WORKER_SIMULATE_MISTAKEN_TRAINER_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/train/trainer.h"

namespace diloco::sim {

struct Mistake {
  bool reset_adamw = false;          // At each new version.
  bool no_merge = false;             // Local values stay, whatever is merged,
  std::optional<uint32_t> fragment;  // of this fragment, or of all.
};

// "reset-adamw", "no-merge" or "no-merge:FRAGMENT".
absl::StatusOr<Mistake> ParseMistake(absl::string_view text);

std::unique_ptr<Trainer> MakeMistakenTrainer(const Mistake& mistake,
                                             std::unique_ptr<Trainer> right);

}  // namespace diloco::sim

#endif  // WORKER_SIMULATE_MISTAKEN_TRAINER_H_

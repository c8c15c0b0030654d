// What train-local does, as a library: a model, one or more shards, N steps.
// Used by train_local.cc and by tests.
#ifndef WORKER_TOOLS_LOCAL_RUN_H_
#define WORKER_TOOLS_LOCAL_RUN_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/config/run_settings.h"
#include "common/io/file_system.h"
#include "common/model/model_config.h"
#include "worker/data/token_file.h"

namespace diloco {

struct LocalRunOptions {
  ModelConfig model;    // Ignored when init_dir gives one.
  TrainSettings train;  // seq_len, rates; token counts follow from steps.
  uint64_t steps = 0;
  uint64_t batch = 8;  // Windows per step, split evenly over the shards.
  uint64_t warmup_steps = 0;
  std::vector<std::string> data;
  std::string eval;               // Empty: no evaluation.
  uint64_t eval_every = 0;        // Steps; 0: only after the last.
  uint64_t eval_tokens = 32'768;  // At most, from the file's start; 0: all.
  TokenFormat format = TokenFormat::kUint16;
  std::string init_dir;  // Hugging Face directory; empty: from the seed.
  uint64_t seed = 1;     // theta(0) and the order of the data.
  std::string out;       // Hugging Face directory to write; empty: none.
  std::vector<std::string> tokenizer_files;  // For `out`.
  int threads = 1;
  int64_t micro_batch = 0;
  std::string device = "cpu";
};

struct LocalEval {
  double loss = 0;  // Nats per token.
  uint64_t tokens = 0;
  // Unset when no manifest beside the shard tells its bytes of text.
  std::optional<double> bits_per_byte;
};

struct LocalStep {
  uint64_t step = 0;  // From 1.
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  double seconds = 0;
  bool skipped = false;
  std::optional<LocalEval> eval;  // After the step.
};

struct LocalReport {
  uint64_t steps = 0;
  uint64_t skipped = 0;
  uint64_t tokens = 0;
  int64_t parameters = 0;
  double train_loss = 0;  // Of the last step.
  std::optional<LocalEval> eval;
  // Without the first step, which allocates. 0 when there is only that one.
  double tokens_per_second = 0;
  double median_step_seconds = 0;
  double train_seconds = 0;  // All steps.
};

// Calls `on_step` after every step. FAILED_PRECONDITION when
// train.max_skipped_steps steps in a row were not finite.
absl::StatusOr<LocalReport> RunLocal(
    FileSystem* fs, Clock* clock, const LocalRunOptions& options,
    const std::function<void(const LocalStep&)>& on_step);

}  // namespace diloco

#endif  // WORKER_TOOLS_LOCAL_RUN_H_

// What a worker needs of a run, handed out by the coordinator at join. Plain
// values; proto/diloco/v1/model.proto is the wire form (codec in common/rpc).
#ifndef COMMON_CONFIG_RUN_SETTINGS_H_
#define COMMON_CONFIG_RUN_SETTINGS_H_

#include <cstdint>
#include <string>

#include "common/io/digest.h"
#include "common/model/fragments.h"
#include "common/model/model_config.h"
#include "common/tensor/codec.h"

namespace diloco {

enum class ScheduleShape { kWsd, kCosine, kLinear, kConstant };
enum class LatePolicy { kCarry, kReject };
// When a worker merges a new global fragment. kExact: `overlap` steps after the
// take, waiting for it if it must; kSlip: at the first step boundary after it
// has arrived.
enum class MergeMode { kExact, kSlip };

struct TrainSettings {
  uint64_t tokens = 0;        // Folded tokens of all workers; the run's end.
  uint64_t batch_tokens = 0;  // Per worker and inner step.
  uint32_t seq_len = 0;
  double lr = 4e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip = 1.0;  // Global gradient norm; 0: no clipping.
  ScheduleShape schedule = ScheduleShape::kWsd;
  uint64_t warmup_tokens = 0;
  double decay_share = 0.2;         // wsd: the last share of the run decays.
  double min_lr = 0.1;              // As a factor of lr.
  uint32_t max_skipped_steps = 10;  // Non-finite in a row before giving up.

  friend bool operator==(const TrainSettings&, const TrainSettings&) = default;
};

struct RunSettings {
  std::string run;
  uint64_t seed = 0;
  ModelConfig model;
  TrainSettings train;
  Fragmentation fragments;
  uint32_t overlap = 0;  // tau: inner steps between take and merge.
  MergeMode merge = MergeMode::kExact;
  double mix = 0;  // alpha: share of the local value that a merge keeps.
  Codec codec_up = Codec::kFp16;
  Codec codec_down = Codec::kFp32;
  // What the encoding of an update loses goes into the next one.
  bool error_feedback = false;
  bool stochastic_rounding = false;  // Of codec_up; else to nearest.
  LatePolicy late = LatePolicy::kCarry;
  uint32_t join_ramp_steps = 50;
  bool join_probe = false;
  Digest layout_digest;

  friend bool operator==(const RunSettings&, const RunSettings&) = default;
};

}  // namespace diloco

#endif  // COMMON_CONFIG_RUN_SETTINGS_H_

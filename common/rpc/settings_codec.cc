#include "common/rpc/settings_codec.h"

#include <array>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/model_config.h"
#include "common/rpc/message_codec.h"
#include "common/tensor/codec.h"

namespace diloco {
namespace {

// The texts are those of the run file.
constexpr std::array<std::pair<ScheduleShape, const char*>, 4> kShapes = {{
    {ScheduleShape::kWsd, "wsd"},
    {ScheduleShape::kCosine, "cosine"},
    {ScheduleShape::kLinear, "linear"},
    {ScheduleShape::kConstant, "constant"},
}};
constexpr std::array<std::pair<LatePolicy, const char*>, 2> kLates = {{
    {LatePolicy::kCarry, "carry"},
    {LatePolicy::kReject, "reject"},
}};
constexpr std::array<std::pair<MergeMode, const char*>, 2> kMerges = {{
    {MergeMode::kExact, "exact"},
    {MergeMode::kSlip, "slip"},
}};
constexpr std::array<FragmentPattern, 5> kPatterns = {
    FragmentPattern::kWhole, FragmentPattern::kSequential,
    FragmentPattern::kStrided, FragmentPattern::kBalanced,
    FragmentPattern::kNames};
// More than any model has tensors.
constexpr uint32_t kMaxFragments = 1 << 20;
constexpr char kPrecision[] = "fp32";

template <typename Enum, size_t kSize>
const char* NameOf(const std::array<std::pair<Enum, const char*>, kSize>& names,
                   Enum value) {
  for (const auto& [candidate, name] : names) {
    if (candidate == value) return name;
  }
  return "";
}

absl::Status Unknown(absl::string_view field, absl::string_view value) {
  return absl::InvalidArgumentError(
      absl::StrCat("run setting ", field, ": this build does not know \"",
                   absl::CHexEscape(value),
                   "\"; the coordinator is newer, update this program"));
}

template <typename Enum, size_t kSize>
absl::StatusOr<Enum> ValueOf(
    const std::array<std::pair<Enum, const char*>, kSize>& names,
    absl::string_view field, const std::string& text) {
  for (const auto& [value, name] : names) {
    if (text == name) return value;
  }
  return Unknown(field, text);
}

absl::StatusOr<Codec> DecodeCodecName(absl::string_view field,
                                      const std::string& name) {
  absl::StatusOr<Codec> codec = ParseCodec(name);
  if (!codec.ok()) return Unknown(field, name);
  return codec;
}

absl::StatusOr<Fragmentation> DecodeFragments(const v1::RunSettings& in) {
  Fragmentation fragments;
  fragments.count = in.fragments();
  fragments.names.assign(in.fragment_names().begin(),
                         in.fragment_names().end());
  if (fragments.count == 0 || fragments.count > kMaxFragments) {
    return absl::InvalidArgumentError(
        absl::StrCat("run settings from the coordinator have ", fragments.count,
                     " fragments; expected 1 to ", kMaxFragments));
  }
  for (FragmentPattern pattern : kPatterns) {
    if (in.pattern() != FragmentPatternName(pattern)) continue;
    fragments.pattern = pattern;
    return fragments;
  }
  return Unknown("sync.pattern", in.pattern());
}

void EncodeModel(const ModelConfig& model, v1::ModelConfig* out) {
  out->set_layers(static_cast<uint32_t>(model.layers));
  out->set_hidden(static_cast<uint32_t>(model.hidden));
  out->set_heads(static_cast<uint32_t>(model.heads));
  out->set_kv_heads(static_cast<uint32_t>(model.kv_heads));
  out->set_head_dim(static_cast<uint32_t>(model.head_dim));
  out->set_ffn(static_cast<uint32_t>(model.ffn));
  out->set_vocab(static_cast<uint32_t>(model.vocab));
  out->set_tied(model.tied);
  out->set_qk_norm(model.qk_norm);
  out->set_rope_theta(model.rope_theta);
  out->set_rms_norm_eps(model.rms_norm_eps);
  out->set_max_positions(static_cast<uint32_t>(model.max_positions));
  out->set_z_loss(model.z_loss);
}

ModelConfig DecodeModel(const v1::ModelConfig& in) {
  ModelConfig model;
  model.layers = in.layers();
  model.hidden = in.hidden();
  model.heads = in.heads();
  model.kv_heads = in.kv_heads();
  model.head_dim = in.head_dim();
  model.ffn = in.ffn();
  model.vocab = in.vocab();
  model.tied = in.tied();
  model.qk_norm = in.qk_norm();
  model.rope_theta = in.rope_theta();
  model.rms_norm_eps = in.rms_norm_eps();
  model.max_positions = in.max_positions();
  model.z_loss = in.z_loss();
  return model;
}

void EncodeTrain(const TrainSettings& train, v1::TrainSettings* out) {
  out->set_tokens(train.tokens);
  out->set_batch_tokens(train.batch_tokens);
  out->set_seq_len(train.seq_len);
  out->set_precision(kPrecision);
  out->set_lr(train.lr);
  out->set_beta1(train.beta1);
  out->set_beta2(train.beta2);
  out->set_eps(train.eps);
  out->set_weight_decay(train.weight_decay);
  out->set_clip(train.clip);
  out->set_schedule(NameOf(kShapes, train.schedule));
  out->set_warmup_tokens(train.warmup_tokens);
  out->set_decay_share(train.decay_share);
  out->set_min_lr(train.min_lr);
  out->set_max_skipped_steps(train.max_skipped_steps);
}

absl::StatusOr<TrainSettings> DecodeTrain(const v1::TrainSettings& in) {
  if (in.precision() != kPrecision) {
    return Unknown("train.precision", in.precision());
  }
  TrainSettings train;
  train.tokens = in.tokens();
  train.batch_tokens = in.batch_tokens();
  train.seq_len = in.seq_len();
  train.lr = in.lr();
  train.beta1 = in.beta1();
  train.beta2 = in.beta2();
  train.eps = in.eps();
  train.weight_decay = in.weight_decay();
  train.clip = in.clip();
  ASSIGN_OR_RETURN(train.schedule,
                   ValueOf(kShapes, "train.schedule.shape", in.schedule()));
  train.warmup_tokens = in.warmup_tokens();
  train.decay_share = in.decay_share();
  train.min_lr = in.min_lr();
  train.max_skipped_steps = in.max_skipped_steps();
  if (train.batch_tokens == 0 || train.seq_len == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("run settings from the coordinator have batch_tokens ",
                     train.batch_tokens, " and seq_len ", train.seq_len,
                     "; both must be positive"));
  }
  return train;
}

}  // namespace

void EncodeRunSettings(const RunSettings& settings, v1::RunSettings* out) {
  out->set_run(settings.run);
  out->set_seed(settings.seed);
  EncodeModel(settings.model, out->mutable_model());
  EncodeTrain(settings.train, out->mutable_train());
  out->set_fragments(settings.fragments.count);
  out->set_pattern(FragmentPatternName(settings.fragments.pattern));
  for (const std::string& names : settings.fragments.names) {
    out->add_fragment_names(names);
  }
  out->set_overlap(settings.overlap);
  out->set_merge(NameOf(kMerges, settings.merge));
  out->set_mix(settings.mix);
  out->set_codec_up(CodecName(settings.codec_up));
  out->set_codec_down(CodecName(settings.codec_down));
  out->set_error_feedback(settings.error_feedback);
  out->set_stochastic_rounding(settings.stochastic_rounding);
  out->set_late(NameOf(kLates, settings.late));
  out->set_join_ramp_steps(settings.join_ramp_steps);
  out->set_join_probe(settings.join_probe);
  out->set_layout_digest(settings.layout_digest.ToBytes());
}

absl::StatusOr<RunSettings> DecodeRunSettings(const v1::RunSettings& in) {
  RunSettings settings;
  settings.run = in.run();
  settings.seed = in.seed();
  settings.model = DecodeModel(in.model());
  RETURN_IF_ERROR(
      WithContext(ValidateModel(settings.model), "model of the run"));
  ASSIGN_OR_RETURN(settings.train, DecodeTrain(in.train()));
  ASSIGN_OR_RETURN(settings.fragments, DecodeFragments(in));
  settings.overlap = in.overlap();
  ASSIGN_OR_RETURN(settings.merge, ValueOf(kMerges, "sync.merge", in.merge()));
  settings.mix = in.mix();
  if (!(settings.mix >= 0 && settings.mix <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("run settings from the coordinator have mix ",
                     settings.mix, "; expected 0 to 1"));
  }
  ASSIGN_OR_RETURN(settings.codec_up,
                   DecodeCodecName("sync.up", in.codec_up()));
  ASSIGN_OR_RETURN(settings.codec_down,
                   DecodeCodecName("sync.down", in.codec_down()));
  settings.error_feedback = in.error_feedback();
  settings.stochastic_rounding = in.stochastic_rounding();
  ASSIGN_OR_RETURN(settings.late, ValueOf(kLates, "sync.late", in.late()));
  settings.join_ramp_steps = in.join_ramp_steps();
  settings.join_probe = in.join_probe();
  ASSIGN_OR_RETURN(settings.layout_digest,
                   DecodeDigest("layout digest", in.layout_digest()));
  return settings;
}

}  // namespace diloco

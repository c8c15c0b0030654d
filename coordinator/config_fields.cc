#include "coordinator/config_fields.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/presets.h"

namespace diloco {
namespace {

constexpr uint64_t kMaxTokens = 1'000'000'000'000'000;
// Beyond these a number is a slip of the pen, not a setting.
constexpr RealBounds kRate = {0, 10, true};
constexpr RealBounds kShare = {0, 1, false};
constexpr RealBounds kPrice = {0, 1e6, false};
constexpr RealBounds kDecayRate = {0, 0.999999, false};

// A key that has one legal value in this build.
Value Only(int* sink, std::string word) {
  return Choice<int>(sink, {{std::move(word), 0}});
}

void AddModel(FieldTable& table, RunConfig* config, const std::string& base) {
  ModelConfig* model = &config->model;
  table.Add({.path = "model.from",
             .value = OrWord(
                 Path(&config->model_dir, base), "config",
                 [config] { return config->model_dir.empty(); },
                 [config] { config->model_dir.clear(); }),
             .doc = "config: the shape is given here and theta(0) is drawn "
                    "from run.seed; else a Hugging Face directory."});
  table.Add({.path = "model.layers",
             .value = Count(&model->layers, 1, 1024),
             .doc = "Transformer blocks."});
  table.Add({.path = "model.hidden",
             .value = Count(&model->hidden, 2, 1 << 17),
             .doc = "Width of the residual stream."});
  table.Add({.path = "model.heads",
             .value = Count(&model->heads, 1, 1024),
             .doc = "Query heads."});
  table.Add({.path = "model.kv_heads",
             .value = Count(&model->kv_heads, 1, 1024),
             .doc = "Key and value heads; divides heads. Default: heads."});
  table.Add({.path = "model.head_dim",
             .value = Count(&model->head_dim, 2, 1024),
             .doc = "Width of a head, even. Default: hidden / heads."});
  table.Add({.path = "model.ffn",
             .value = Count(&model->ffn, 1, 1 << 20),
             .doc = "Inner width of the feed-forward block."});
  table.Add({.path = "model.vocab",
             .value = Count(&model->vocab, 2, 1 << 24),
             .doc = "Rows of the embedding; ids in the data are below it."});
  table.Add({.path = "model.tied",
             .value = Bool(&model->tied),
             .doc = "The output head shares the embedding."});
  table.Add({.path = "model.qk_norm",
             .value = Bool(&model->qk_norm),
             .doc = "RMSNorm of queries and keys per head (Qwen3)."});
  table.Add({.path = "model.rope_theta",
             .value = Real(&model->rope_theta, {1, 1e9}),
             .doc = "Base of the rotary angles."});
  table.Add({.path = "model.rms_norm_eps",
             .value = Real(&model->rms_norm_eps, {0, 0.1, true}),
             .doc = "Epsilon of the norms."});
  table.Add({.path = "model.max_positions",
             .value = Count(&model->max_positions, 1, 1 << 24),
             .doc = "Longest sequence. Default: data.seq_len."});
  table.Add({.path = "model.z_loss",
             .value = Real(&model->z_loss, {0, 1}),
             .doc = "Factor of the squared log-partition term; 0: none."});
}

void AddData(FieldTable& table, RunConfig* config, RunFileExtras* extras,
             const std::string& base) {
  table.Add({.path = "data.manifest",
             .value = OrNone(Path(&extras->manifest, base), &extras->manifest),
             .doc = "dataset.json of the training data, for bits per byte; the "
                    "workers' shards are not compared with it."});
  table.Add(
      {.path = "data.tokenizer",
       .value = OrNone(PathList(&extras->tokenizer, base), &extras->tokenizer),
       .doc = "Tokenizer files, or a directory with them; copied into "
              "every export. Default: those of model.from."});
  table.Add({.path = "data.assignment",
             .value = NotYet(Only(&extras->only, "local"), {"leased"}),
             .doc = "local: every worker reads its own shard."});
  table.Add({.path = "data.seq_len",
             .value = Count(&config->train.seq_len, 2, 1 << 20),
             .doc = "Tokens of a window.",
             .required = true});
}

void AddTrain(FieldTable& table, RunConfig* config, RunFileExtras* extras) {
  TrainSettings* train = &config->train;
  const Change boundary = Change::kBoundary;
  table.Add({.path = "train.tokens",
             .value = Count(&train->tokens, 1, kMaxTokens),
             .doc = "Folded tokens of all workers; the run ends there.",
             .change = boundary,
             .required = true});
  table.Add({.path = "train.batch_tokens",
             .value = Count(&train->batch_tokens, 1, 1'000'000'000),
             .doc = "Tokens per worker and inner step; a multiple of "
                    "data.seq_len.",
             .change = boundary,
             .required = true});
  table.Add({.path = "train.precision",
             .value = NotYet(Only(&extras->only, "fp32"), {"bf16"}),
             .doc = "Working precision."});
  table.Add({.path = "train.max_skipped_steps",
             .value = Count(&train->max_skipped_steps, 1u, 1000000u),
             .doc = "Non-finite steps in a row before a worker gives up.",
             .change = boundary});
  table.Add({.path = "train.optimizer.name",
             .value = Only(&extras->only, "adamw"),
             .doc = "Inner optimiser."});
  table.Add({.path = "train.optimizer.lr",
             .value = Real(&train->lr, kRate),
             .doc = "Peak inner learning rate.",
             .change = boundary});
  table.Add({.path = "train.optimizer.betas",
             .value = RealList({&train->beta1, &train->beta2}, kDecayRate),
             .doc = "Decay rates of AdamW's moments."});
  table.Add({.path = "train.optimizer.eps",
             .value = Real(&train->eps, {1e-30, 1}),
             .doc = "Added to the root of the second moment."});
  table.Add({.path = "train.optimizer.weight_decay",
             .value = Real(&train->weight_decay, {0, 10}),
             .doc = "Decoupled, on tensors of two dimensions."});
  table.Add({.path = "train.optimizer.clip",
             .value = Real(&train->clip, {0, 1e6}),
             .doc = "Global gradient norm; 0: no clipping."});
  table.Add({.path = "train.schedule.shape",
             .value = Choice<ScheduleShape>(
                 &train->schedule, {{"wsd", ScheduleShape::kWsd},
                                    {"cosine", ScheduleShape::kCosine},
                                    {"linear", ScheduleShape::kLinear},
                                    {"constant", ScheduleShape::kConstant}}),
             .doc = "Learning rate as a function of the run's progress.",
             .change = boundary});
  table.Add({.path = "train.schedule.warmup_tokens",
             .value = Count(&train->warmup_tokens, 0, kMaxTokens),
             .doc = "Linear warm-up, in folded tokens of all workers.",
             .change = boundary});
  table.Add({.path = "train.schedule.decay_share",
             .value = Real(&train->decay_share, kShare),
             .doc = "wsd: share of the run at its end that decays.",
             .change = boundary});
  table.Add({.path = "train.schedule.min_lr",
             .value = Real(&train->min_lr, kShare),
             .doc = "Where the decay ends, as a factor of lr.",
             .change = boundary});
}

void AddOuterSchedule(FieldTable& table, OuterSchedule* schedule) {
  const Change boundary = Change::kBoundary;
  table.Add({.path = "outer.schedule.shape",
             .value = Choice<OuterShape>(&schedule->shape,
                                         {{"constant", OuterShape::kConstant},
                                          {"linear", OuterShape::kLinear},
                                          {"cosine", OuterShape::kCosine}}),
             .doc = "Decay of outer.lr by round. Published recipes keep it "
                    "constant.",
             .change = boundary});
  table.Add({.path = "outer.schedule.warmup_rounds",
             .value = Count(&schedule->warmup_rounds, 0u, 1000000u),
             .doc = "First rounds, in which outer.lr rises linearly.",
             .change = boundary});
  table.Add({.path = "outer.schedule.decay_rounds",
             .value = Count(&schedule->decay_rounds, 0u, 1000000u),
             .doc = "linear, cosine: rounds after those, at whose end outer.lr "
                    "is at min_lr, where it stays.",
             .change = boundary});
  table.Add({.path = "outer.schedule.min_lr",
             .value = Real(&schedule->min_lr, kShare),
             .doc = "Where the decay ends, as a factor of outer.lr.",
             .change = boundary});
}

void AddSync(FieldTable& table, RunConfig* config) {
  RunConfig::Sync* sync = &config->sync;
  const Change boundary = Change::kBoundary;
  const Change at_once = Change::kAtOnce;
  std::vector<std::pair<std::string, Preset>> presets;
  for (const PresetRow& row : AllPresets()) {
    presets.push_back({row.name, row.preset});
  }
  table.Add({.path = "sync.preset",
             .value = NotYet(Choice<Preset>(&sync->preset, presets),
                             {"decoupled", "async", "sparse", "eager"}),
             .doc = "Named defaults for fragments, interval, overlap, merge, "
                    "mix, merge_rule, up and outer; dilococtl plan tells."});
  table.Add({.path = "sync.fragments",
             .value = Count(&sync->fragments.count, 1u, 100000u),
             .doc = "P: parts of theta with versions of their own, each due "
                    "every interval steps, evenly spread; at most one for each "
                    "tensor, and no more than the interval has steps."});
  table.Add(
      {.path = "sync.pattern",
       .value = Choice<FragmentPattern>(
           &sync->fragments.pattern,
           {{"whole", FragmentPattern::kWhole},
            {"sequential", FragmentPattern::kSequential},
            {"strided", FragmentPattern::kStrided},
            {"balanced", FragmentPattern::kBalanced},
            {"names", FragmentPattern::kNames}}),
       .doc = "How tensors are grouped. sequential: layers in a row; strided: "
              "every P-1st layer, embedding, head and final norm apart; "
              "balanced: by bytes; names: by fragment_names. Default: whole "
              "for one fragment, else strided."});
  table.Add({.path = "sync.fragment_names",
             .value = OrNone(TextList(&sync->fragments.names),
                             &sync->fragments.names),
             .doc = "Pattern names: for each fragment which tensors it takes, "
                    "* for any characters, | between alternatives; the first "
                    "that matches counts."});
  table.Add({.path = "sync.interval",
             .value = Count(&sync->interval, 1u, 1000000u),
             .doc = "H: inner steps of a round.",
             .change = boundary});
  table.Add({.path = "sync.interval_first",
             .value = Count(&sync->interval_first, 0u, 1000000u),
             .doc = "H of the first rounds_first rounds.",
             .change = boundary});
  table.Add({.path = "sync.rounds_first",
             .value = Count(&sync->rounds_first, 0u, 1000000u),
             .doc = "Rounds that use interval_first; 0: none.",
             .change = boundary});
  table.Add({.path = "sync.overlap",
             .value = Count(&sync->overlap, 0u, 1000000u),
             .doc = "Inner steps between the taking of an update and the "
                    "merging of its round's result; below interval.",
             .change = boundary});
  table.Add(
      {.path = "sync.merge",
       .value = Choice<MergeMode>(&sync->merge, {{"exact", MergeMode::kExact},
                                                 {"slip", MergeMode::kSlip}}),
       .doc = "exact: after overlap steps, waiting if the result is not there; "
              "slip: at the first step boundary after it has come.",
       .change = boundary});
  table.Add({.path = "sync.mix",
             .value = Real(&sync->mix, kShare),
             .doc = "Share of the local value that a merge keeps.",
             .change = boundary});
  table.Add(
      {.path = "sync.quorum",
       .value = OrWord(
           OrPercent(Count(&sync->quorum, 1u, 100000u), &sync->quorum_share,
                     [sync] { sync->quorum = 0; }),
           "all",
           [sync] { return sync->quorum == 0 && sync->quorum_share == 0; },
           [sync] { sync->quorum = sync->quorum_share = 0; }),
       .doc = "Updates that close a round before its deadline, once the "
              "grace is over: a count, or a share of those it waits for.",
       .change = boundary});
  table.Add(
      {.path = "sync.grace",
       .value = OrPercent(
           Duration(&sync->grace, absl::ZeroDuration(), absl::Hours(24)),
           &sync->grace_share, [sync] { sync->grace = absl::ZeroDuration(); }),
       .doc = "How long a round waits for more once its quorum is in: a "
              "duration, or a share of the time that the quorum took.",
       .change = boundary});
  table.Add({.path = "sync.steps",
             .value = Choice<bool>(&sync->steps_by_speed,
                                   {{"equal", false}, {"by_speed", true}}),
             .doc = "equal: every worker makes interval steps; by_speed: a "
                    "slower one makes as many as the fastest leaves it time "
                    "for.",
             .change = boundary});
  table.Add({.path = "sync.deadline",
             .value = DurationOrAuto(&sync->deadline, absl::Seconds(1),
                                     absl::Hours(24 * 30)),
             .doc = "When a round closes regardless. auto: 1.5 x the slowest "
                    "predicted finish.",
             .change = boundary});
  table.Add({.path = "sync.min_updates",
             .value = Count(&sync->min_updates, 1u, 100000u),
             .doc = "Updates without which a deadline does not fold.",
             .change = at_once});
  table.Add({.path = "sync.short_round",
             .value = Choice<ShortRound>(&sync->short_round,
                                         {{"extend", ShortRound::kExtend},
                                          {"fold", ShortRound::kFold},
                                          {"void", ShortRound::kVoid}}),
             .doc = "What a deadline with fewer than min_updates does.",
             .change = at_once});
  table.Add(
      {.path = "sync.late",
       .value = NotYet(
           Choice<LatePolicy>(&sync->late, {{"carry", LatePolicy::kCarry},
                                            {"reject", LatePolicy::kReject}}),
           {"discount", "next"}),
       .doc = "What becomes of work whose round has closed.",
       .change = boundary});
  table.Add(
      {.path = "sync.weight",
       .value = NotYet(
           Choice<Weighting>(&sync->weight, {{"tokens", Weighting::kTokens},
                                             {"uniform", Weighting::kUniform}}),
           {"share", "tokens2_per_step"}),
       .doc = "Weight of an update in the mean.",
       .change = boundary});
  std::vector<std::pair<std::string, MergeRule>> rules;
  for (MergeRule rule : kMergeRules) {
    rules.push_back({MergeRuleName(rule), rule});
  }
  table.Add({.path = "sync.merge_rule",
             .value = Choice<MergeRule>(&sync->merge_rule, rules),
             .doc = "How a round's updates become one, tensor by tensor. mean: "
                    "weighted; norm_clipped: of updates clipped to their "
                    "median norm; radial_directional: mean norm times mean "
                    "direction, but for embeddings.",
             .change = boundary});
  std::vector<std::pair<std::string, Codec>> codecs;
  for (Codec codec : kCodecs) codecs.push_back({CodecName(codec), codec});
  table.Add({.path = "sync.up",
             .value = NotYet(Choice<Codec>(&sync->up, codecs), {"topk2"}),
             .doc = "Encoding of updates: bytes a parameter are 4 (fp32), 2 "
                    "(fp16, bf16), 1.01 (int8), 1 (int8_buckets), 0.52 (e3m0).",
             .change = boundary});
  table.Add({.path = "sync.error_feedback",
             .value = Choice<ErrorFeedback>(&sync->error_feedback,
                                            {{"auto", ErrorFeedback::kAuto},
                                             {"on", ErrorFeedback::kOn},
                                             {"off", ErrorFeedback::kOff}}),
             .doc = "What the encoding of an update loses goes into the next "
                    "one; 4 more bytes a parameter in a worker's memory and "
                    "checkpoint. auto: with int8 and int8_buckets; not with "
                    "e3m0, whose published recipe has none.",
             .change = boundary});
  table.Add({.path = "sync.rounding",
             .value = Choice<bool>(&sync->stochastic_rounding,
                                   {{"nearest", false}, {"stochastic", true}}),
             .doc = "How int8 and e3m0 round; stochastic: the mean over many "
                    "workers is right, each update has more noise.",
             .change = boundary});
  table.Add(
      {.path = "sync.down",
       .value = NotYet(Choice<Codec>(&sync->down, {{"fp32", Codec::kFp32}}),
                       {"fp16", "bf16"}),
       .doc = "Encoding of the change that workers apply.",
       .change = boundary});
  table.Add({.path = "outer.rule",
             .value = Choice<OuterRule>(&config->outer.rule,
                                        {{"nesterov", OuterRule::kNesterov},
                                         {"heavy_ball", OuterRule::kHeavyBall},
                                         {"sgd", OuterRule::kSgd}}),
             .doc = "Outer optimiser."});
  table.Add({.path = "outer.lr",
             .value = Real(&config->outer.lr, kRate),
             .doc = "Outer learning rate.",
             .change = boundary});
  table.Add({.path = "outer.momentum",
             .value = Real(&config->outer.momentum, kDecayRate),
             .doc = "Outer momentum; sgd has none.",
             .change = boundary});
  AddOuterSchedule(table, &config->outer.schedule);
}

void AddScreens(FieldTable& table, RunConfig::Screens* screen) {
  table.Add({.path = "screen.norm",
             .value = OrWord(
                 Real(&screen->norm, {1, 1e6, true}), "never",
                 [screen] { return screen->norm == 0; },
                 [screen] { screen->norm = 0; }),
             .doc = "Refuses an update whose norm, over the learning rates "
                    "that its steps add up to, is so many times the median of "
                    "the round's from 4 updates on, else of its worker's last "
                    "16, once it has 10.",
             .change = Change::kAtOnce});
  table.Add({.path = "screen.replay",
             .value = Bool(&screen->replay),
             .doc = "Refuses an update that was accepted before, from "
                    "whichever worker.",
             .change = Change::kAtOnce});
  table.Refuse("screen.cosine", "not available yet in this build; remove it");
}

void AddRest(FieldTable& table, RunConfig* config, RunFileExtras* extras,
             const std::string& base) {
  const Change boundary = Change::kBoundary;
  const Change at_once = Change::kAtOnce;
  const Change local = Change::kLocal;
  table.Add({.path = "join.wait_for",
             .value = Count(&config->join.wait_for, 1u, 100000u),
             .doc = "Workers that must have joined before round 1 opens."});
  table.Add({.path = "join.ramp_steps",
             .value = Count(&config->join.ramp_steps, 0u, 1000000u),
             .doc = "Steps of learning-rate ramp after a cold optimiser."});
  table.Add({.path = "join.max_workers",
             .value = Count(&config->join.max_workers, 1u, 100000u),
             .doc = "Workers that may be in the run at once.",
             .change = at_once});
  table.Add({.path = "join.lease",
             // Workers that are there beat as they were told at their Join:
             // a lease that is set in mid-run must not be shorter than the
             // silence that makes them suspect.
             .value = Duration(&config->join.lease, Policy().suspect_after,
                               absl::Hours(24)),
             .doc = "Silence after which a worker counts as lost.",
             .change = at_once});
  table.Add({.path = "join.probe",
             .value = Bool(&config->join.probe),
             .doc = "A worker that starts cold first times three steps and "
                    "evaluates a slice of the validation shard; a loss more "
                    "than 1 % from the run's turns it away.",
             .change = at_once});
  table.Add(
      {.path = "eval.shard",
       .value = OrNone(Path(&extras->eval_shard, base), &extras->eval_shard),
       .doc = "Validation ids (headerless uint16, up to 64 MiB); the "
              "coordinator hands them out.",
       .change = boundary});
  RunConfig::Eval* eval = &config->eval;
  table.Add(
      {.path = "eval.every",
       .value = OrWord(
           Rounds(&eval->every, 1000000), "never",
           [eval] { return eval->every == 0; }, [eval] { eval->every = 0; }),
       .doc = "Published versions between evaluations of theta.",
       .change = at_once});
  table.Add(
      {.path = "eval.tokens",
       .value = OrWord(
           Count(&eval->tokens, 1, kMaxTokens), "all",
           [eval] { return eval->tokens == 0; }, [eval] { eval->tokens = 0; }),
       .doc = "Predictions per evaluation, from the shard's start.",
       .change = at_once});
  table.Add({.path = "keep.last",
             .value = Count(&config->keep.last, 2u, 100000u),
             .doc = "Images kept.",
             .change = local});
  table.Add({.path = "keep.every",
             .value = Count(&config->keep.every, 0, 1'000'000'000),
             .doc = "Also kept: of so many versions the first image; 0: none.",
             .change = local});
  table.Add({.path = "keep.free_space",
             .value = Bytes(&config->keep.free_space),
             .doc = "Space that rounds leave on the state directory's disk, "
                    "for the journal and for others. With less, the oldest "
                    "images go first, those of keep.every last, and then no "
                    "round opens.",
             .change = local});
  table.Add({.path = "export.every",
             .value = Count(&extras->export_every, 0u, 1000000000u),
             .doc = "Versions between exports.",
             .change = local,
             .no_effect = true});
  table.Add({.path = "export.keep",
             .value = Count(&extras->export_keep, 1u, 100000u),
             .doc = "Exports kept.",
             .change = local,
             .no_effect = true});
  RunConfig::Guard* guard = &config->guard;
  table.Add({.path = "guard.eval_rise",
             .value = OrWord(
                 Real(&guard->eval_rise, {0, 100, true}), "never",
                 [guard] { return guard->eval_rise == 0; },
                 [guard] { guard->eval_rise = 0; }),
             .doc = "Alarm: an evaluation so many nats per token above the "
                    "lowest so far.",
             .change = at_once});
  table.Add({.path = "guard.norm_jump",
             .value = OrWord(
                 Real(&guard->norm_jump, {1, 1e6, true}), "never",
                 [guard] { return guard->norm_jump == 0; },
                 [guard] { guard->norm_jump = 0; }),
             .doc = "Alarm: an update whose norm is so many times the median "
                    "of the 32 folded before.",
             .change = at_once});
  table.Add({.path = "guard.action",
             .value = NotYet(Only(&extras->only, "pause"), {"rollback"}),
             .doc = "What an alarm does. Going back is dilococtl rollback.",
             .change = at_once});
  table.Add({.path = "listen.control",
             .value = HostPort(&config->listen.control),
             .doc = "Where workers and dilococtl connect.",
             .change = local});
  table.Add({.path = "listen.metrics",
             .value = OrNone(MetricsAddress(&config->listen.metrics),
                             &config->listen.metrics),
             .doc = "Where /metrics, /livez and /readyz are served.",
             .change = local});
  table.Add({.path = "state.dir",
             .value = Path(&config->state.dir, base),
             .doc = "The run's durable state.",
             .change = local});
  table.Add({.path = "state.image_every",
             .value = Count(&config->state.image_every, 1u, 1000000u),
             .doc = "Versions between full images of theta.",
             .change = local});
  table.Add({.path = "prices.gpu_hour",
             .value = Real(&config->prices.gpu_hour, kPrice),
             .doc = "Of an hour of one worker with all its accelerators, in "
                    "any currency; dilococtl plan tells what a run costs.",
             .change = local});
  table.Add({.path = "prices.egress_gb",
             .value = Real(&config->prices.egress_gb, kPrice),
             .doc = "Of 10^9 bytes that leave the coordinator.",
             .change = local});
}

}  // namespace

FieldTable RunFileTable(RunConfig* config, RunFileExtras* extras,
                        const std::string& base) {
  FieldTable table;
  table.Add({.path = "run.name",
             .value = Name(&config->run),
             .doc = "Names the run on the wire and on disk.",
             .required = true});
  table.Add(
      {.path = "run.seed",
       .value = Count(&config->seed, 0, std::numeric_limits<uint64_t>::max()),
       .doc = "Theta(0) and the order of the data follow from it."});
  AddModel(table, config, base);
  AddData(table, config, extras, base);
  AddTrain(table, config, extras);
  AddSync(table, config);
  AddScreens(table, &config->screen);
  AddRest(table, config, extras, base);
  return table;
}

}  // namespace diloco

#include "coordinator/presets.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/logging.h"

namespace diloco {
namespace {

constexpr PresetRow kPresets[] = {
    {.preset = Preset::kDiloco,
     .name = "diloco",
     .source = "DiLoCo, arXiv 2311.08105",
     .published = "150 M parameters, 8 workers, H 500: perplexity 15.02, one "
                  "worker 16.23, synchronous with 8 times the batch 15.30"},
    {.preset = Preset::kFedavg,
     .name = "fedavg",
     .rule = OuterRule::kSgd,
     .outer_lr = 1,
     .outer_momentum = 0,
     .source = "FedAvg, the case of outer SGD in arXiv 2311.08105",
     .published = "worse than Nesterov in long runs; the safe choice in short "
                  "ones"},
    {.preset = Preset::kStreaming,
     .name = "streaming",
     .fragments = 0,
     .pattern = FragmentPattern::kStrided,
     .overlap = 2,
     .mix = 0.5,
     .outer_lr = 0.4,
     .up = Codec::kE3m0,
     .source = "Streaming DiLoCo, arXiv 2501.18512",
     .published = "1 B parameters, 2 workers, H 100: loss 2.50, synchronous "
                  "2.49; 1.10 TB moved where that moves 441 TB"},
};

std::string Text(MergeMode merge) {
  return merge == MergeMode::kExact ? "exact" : "slip";
}

}  // namespace

absl::Span<const PresetRow> AllPresets() { return kPresets; }

const PresetRow& RowOf(Preset preset) {
  const auto* const row =
      std::find_if(std::begin(kPresets), std::end(kPresets),
                   [&](const PresetRow& of) { return of.preset == preset; });
  DILOCO_CHECK(row != std::end(kPresets)) << "a preset without a row";
  return *row;
}

void ApplyPreset(Preset preset, RunConfig* config) {
  const PresetRow& row = RowOf(preset);
  RunConfig::Sync& sync = config->sync;
  sync.preset = preset;
  sync.interval = row.interval;
  sync.overlap = row.overlap;
  sync.merge = row.merge;
  sync.mix = row.mix;
  sync.merge_rule = row.merge_rule;
  sync.up = row.up;
  config->outer.rule = row.rule;
  config->outer.lr = row.outer_lr;
  config->outer.momentum = row.outer_momentum;
}

uint32_t FragmentsOf(const PresetRow& row, int64_t layers) {
  if (row.fragments > 0) return row.fragments;
  return static_cast<uint32_t>(std::max<int64_t>(2, (layers + 2) / 3));
}

std::vector<PresetKey> PresetKeys(const RunConfig& config) {
  const RunConfig::Sync& sync = config.sync;
  const PresetRow& row = RowOf(sync.preset);
  const auto number = [](auto value) { return absl::StrCat(value); };
  return {
      {"sync.interval", number(row.interval), number(sync.interval)},
      {"sync.fragments", number(FragmentsOf(row, config.model.layers)),
       number(sync.fragments.count)},
      {"sync.pattern", FragmentPatternName(row.pattern),
       FragmentPatternName(sync.fragments.pattern)},
      {"sync.overlap", number(row.overlap), number(sync.overlap)},
      {"sync.merge", Text(row.merge), Text(sync.merge)},
      {"sync.mix", number(row.mix), number(sync.mix)},
      {"sync.merge_rule", MergeRuleName(row.merge_rule),
       MergeRuleName(sync.merge_rule)},
      {"sync.up", CodecName(row.up), CodecName(sync.up)},
      {"outer.rule", OuterRuleName(row.rule), OuterRuleName(config.outer.rule)},
      {"outer.lr", number(row.outer_lr), number(config.outer.lr)},
      {"outer.momentum", number(row.outer_momentum),
       number(config.outer.momentum)},
  };
}

std::string PresetText(const RunConfig& config) {
  const PresetRow& row = RowOf(config.sync.preset);
  std::vector<std::string> other;
  for (const PresetKey& key : PresetKeys(config)) {
    if (key.preset == key.file) continue;
    other.push_back(
        absl::StrCat(key.key, " ", key.file, " instead of ", key.preset));
  }
  return absl::StrCat(
      "preset ", row.name, " (", row.source, ": ", row.published, ")",
      other.empty()
          ? ", as it is"
          : absl::StrCat("; the file has ", absl::StrJoin(other, ", ")));
}

const char* OuterRuleName(OuterRule rule) {
  switch (rule) {
    case OuterRule::kNesterov:
      return "nesterov";
    case OuterRule::kHeavyBall:
      return "heavy_ball";
    case OuterRule::kSgd:
      return "sgd";
  }
  return "unknown";
}

}  // namespace diloco

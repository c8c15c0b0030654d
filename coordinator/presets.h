// The presets of `sync.preset`: named settings, each from a publication, in one
// table (README.md has their sources and numbers). A key in the run file
// overrides what its preset says. Used by config.cc and by `dilococtl plan` and
// `config check`, which tell what the preset stands for.
#ifndef COORDINATOR_PRESETS_H_
#define COORDINATOR_PRESETS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "coordinator/config.h"

namespace diloco {

struct PresetRow {
  Preset preset = Preset::kDiloco;
  const char* name = "";
  uint32_t interval = 100;
  // 0: max(2, layers / 3 rounded up), as streaming was published.
  uint32_t fragments = 1;
  FragmentPattern pattern = FragmentPattern::kWhole;
  uint32_t overlap = 0;
  MergeMode merge = MergeMode::kExact;
  double mix = 0;
  OuterRule rule = OuterRule::kNesterov;
  double outer_lr = 0.7;
  double outer_momentum = 0.9;
  MergeRule merge_rule = MergeRule::kMean;
  Codec up = Codec::kFp16;
  const char* source = "";     // Name and arXiv number.
  const char* published = "";  // What it was shown to do, in words.
};

absl::Span<const PresetRow> AllPresets();
const PresetRow& RowOf(Preset preset);

// Sets what the preset stands for; `fragments` waits for the model's layers.
void ApplyPreset(Preset preset, RunConfig* config);
// How many fragments the preset has with that model.
uint32_t FragmentsOf(const PresetRow& row, int64_t layers);

// A key that the preset sets, and what the file made of it.
struct PresetKey {
  std::string key;
  std::string preset;
  std::string file;
};
std::vector<PresetKey> PresetKeys(const RunConfig& config);
// "streaming (...): as published" or "...; the file has sync.interval 30
// instead of 100, ...".
std::string PresetText(const RunConfig& config);

const char* OuterRuleName(OuterRule rule);

}  // namespace diloco

#endif  // COORDINATOR_PRESETS_H_

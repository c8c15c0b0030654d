#include "coordinator/run_options.h"

#include "common/base/status_macros.h"
#include "common/model/fragments.h"
#include "common/model/hf_directory.h"
#include "common/model/initialiser.h"

namespace diloco {

absl::StatusOr<CoordinatorOptions> OptionsOfRun(FileSystem* fs,
                                                const RunConfig& config) {
  CoordinatorOptions options;
  options.fs = fs;
  options.run = config.run;
  options.policy = MakePolicy(config);
  ASSIGN_OR_RETURN(options.layout,
                   ModelLayout(config.model, config.sync.fragments));
  options.settings = MakeRunSettings(config, options.layout);
  options.settings_text = SettingsText(config);
  options.settings_digest = SettingsDigest(config);
  for (const ChangeableSetting& setting : ChangeableSettings()) {
    options.changes.changeable[setting.key] = setting.at_once;
  }
  options.changes.defaults = ParseSettings(SettingsText(RunConfig()));
  options.changes.with =
      [config, layout = options.layout](
          const SettingValues& values) -> absl::StatusOr<SettingsView> {
    ASSIGN_OR_RETURN(const RunConfig changed, ChangeSettings(config, values));
    return SettingsView{0, MakePolicy(changed),
                        MakeRunSettings(changed, layout),
                        SettingsText(changed)};
  };
  options.state_dir = config.state.dir;
  options.image_every = config.state.image_every;
  options.keep_images = static_cast<int>(config.keep.last);
  options.keep_every = config.keep.every;
  options.keep_free_bytes = config.keep.free_space;
  const ModelConfig model = config.model;
  const Layout layout = options.layout;
  if (config.model_dir.empty()) {
    options.initial_theta = [model, layout,
                             seed = config.seed](absl::Span<float> theta) {
      return InitialiseTheta(model, layout, seed, theta);
    };
  } else {
    options.initial_theta = [fs, model, layout,
                             dir = config.model_dir](absl::Span<float> theta) {
      return ReadHfWeights(fs, dir, model, layout, theta);
    };
  }
  if (config.eval.shard.has_value()) {
    options.eval_shard = config.eval.shard->path;
    options.bytes_per_token = config.data.bytes_per_token;
  }
  for (const ContentFile& file : config.data.tokenizer_files) {
    options.tokenizer_files.push_back(
        {file.path.substr(file.path.rfind('/') + 1), file.path});
  }
  options.model_json = HfConfigJson(config.model);
  return options;
}

}  // namespace diloco

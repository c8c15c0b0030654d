#include "coordinator/server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/shutdown.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/model/fragments.h"
#include "common/model/hf_directory.h"
#include "common/model/initialiser.h"
#include "common/rpc/server.h"

namespace diloco {
absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(
    const RunConfig& config, bool accept_edits) {
  FileSystem* const fs = FileSystem::Posix();
  auto server = std::unique_ptr<CoordinatorServer>(new CoordinatorServer);
  CoordinatorOptions options;
  options.fs = fs;
  options.run = config.run;
  options.policy = MakePolicy(config);
  ASSIGN_OR_RETURN(options.layout,
                   ModelLayout(config.model, config.sync.fragments));
  options.settings = MakeRunSettings(config, options.layout);
  options.settings_text = SettingsText(config);
  options.settings_digest = SettingsDigest(config);
  options.accept_edits = accept_edits;
  for (const ChangeableSetting& setting : ChangeableSettings()) {
    options.changes.changeable[setting.key] = setting.at_once;
  }
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
  options.metrics = &server->metrics_;
  options.on_superseded = [superseded = &server->superseded_] {
    *superseded = true;
    RequestShutdown();
  };
  server->metrics_
      .AddGauge("diloco_build_info", "1, labelled with the build.",
                {{"version", BuildVersion()}})
      ->Set(1);

  // Before the run is created: a run file that must be corrected would then no
  // longer be that of the state directory.
  RETURN_IF_ERROR(CheckCanListen(config.listen.control));
  if (!config.listen.metrics.empty()) {
    // A long recovery is alive, too.
    ASSIGN_OR_RETURN(
        server->http_,
        MetricsServer::Start(config.listen.metrics, &server->metrics_,
                             [serving = &server->serving_]() -> std::string {
                               const Coordinator* const coordinator = *serving;
                               return coordinator == nullptr
                                          ? "starting"
                                          : coordinator->NotReady();
                             }));
  }
  ASSIGN_OR_RETURN(server->coordinator_,
                   Coordinator::Start(std::move(options)));
  ASSIGN_OR_RETURN(server->grpc_, GrpcServer::Start(server->coordinator_.get(),
                                                    config.listen.control));
  server->serving_ = server->coordinator_.get();
  DILOCO_LOG(INFO) << "serving run=" << config.run
                   << " control=" << config.listen.control
                   << " port=" << server->grpc_->port() << " metrics="
                   << (server->http_ == nullptr ? "none"
                                                : config.listen.metrics);
  return server;
}

CoordinatorServer::~CoordinatorServer() { Shutdown(absl::ZeroDuration()); }

void CoordinatorServer::Shutdown(absl::Duration grace) {
  if (grpc_ != nullptr) grpc_->Shutdown(grace);
  http_.reset();
  if (coordinator_ != nullptr) coordinator_->Stop();
}

}  // namespace diloco

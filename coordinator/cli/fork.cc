// `dilococtl fork`: a new run from theta and momentum of another one.
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/model/fragments.h"
#include "common/tensor/layout.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/message_json.h"
#include "coordinator/cli/run_file.h"
#include "coordinator/config.h"
#include "coordinator/offline/lineage.h"

namespace diloco {
namespace {

absl::Status RunFork(const Invocation& invocation) {
  if (!invocation.Has("at") || !invocation.Has("config")) {
    return absl::InvalidArgumentError(
        "fork needs --at VERSION and --config FILE, the run file of the new "
        "run");
  }
  ASSIGN_OR_RETURN(const uint64_t version,
                   ParseCount("at", invocation.Get("at")));
  ASSIGN_OR_RETURN(const LoadedRun loaded,
                   LoadRunFile(invocation.Get("config")));
  const RunConfig& config = loaded.config;
  ASSIGN_OR_RETURN(const Layout layout,
                   ModelLayout(config.model, config.sync.fragments));
  ForkTarget target;
  target.state_dir = config.state.dir;
  target.run = config.run;
  target.settings_text = SettingsText(config);
  target.settings_digest = SettingsDigest(config);
  target.layout_digest = layout.ComputeDigest();
  ASSIGN_OR_RETURN(const RunCreated created,
                   Fork(FileSystem::Posix(), invocation.positional[0], version,
                        target, RandomBytes(16)));
  if (invocation.json) {
    nlohmann::ordered_json json;
    json["state"] = target.state_dir;
    json["run"] = created.run;
    json["lineage"] = ToHex(created.lineage);
    json["digest"] = created.fragments[0].digest.ToHex();
    std::printf("%s\n", JsonLine(json).c_str());
    return absl::OkStatus();
  }
  std::printf("%s: run %s begins with theta %s of version %lu\n",
              target.state_dir.c_str(), created.run.c_str(),
              created.fragments[0].digest.Short().c_str(),
              static_cast<unsigned long>(version));
  return absl::OkStatus();
}

}  // namespace

CommandSpec ForkCommand() {
  CommandSpec command;
  command.name = "fork";
  command.summary = "begin a new run from theta and momentum of a version";
  command.positional = {"DIR"};
  command.flags = {{"at", "VERSION", "the version to begin with (required)"},
                   {"config", "FILE", "run file of the new run (required)"}};
  command.details =
      "Makes the state.dir of FILE, which must not exist; start a coordinator\n"
      "with FILE afterwards. All settings but the model may differ. The run "
      "in\n"
      "DIR is only read, and may go on.\n";
  command.example = "  dilococtl fork state --at 40 --config lower-lr.yaml\n";
  command.run = RunFork;
  return command;
}

}  // namespace diloco

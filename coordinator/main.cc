// diloco-coordinator: the daemon of one run.

#include <malloc.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "absl/time/clock.h"
#include "common/base/edit_distance.h"
#include "common/base/logging.h"
#include "common/base/shutdown.h"
#include "common/base/utf8.h"
#include "common/base/version.h"
#include "coordinator/server.h"

namespace {

constexpr char kUsage[] =
    "Usage: diloco-coordinator --config run.yaml [--accept] [--log-level "
    "LEVEL]\n"
    "\n"
    "Serves one run: holds theta and the outer optimiser, opens rounds, folds\n"
    "the workers' updates. SIGTERM or Ctrl-C stops it; started again it goes "
    "on.\n"
    "\n"
    "  --config FILE       the run file (see deploy/examples/run.yaml)\n"
    "  --accept            takes over what was edited in the run file of a run "
    "that\n"
    "                      exists; without it such an edit is shown and "
    "refused\n"
    "  --log-level LEVEL   debug, info (default), warning or error\n"
    "  --version           prints the version\n"
    "\n"
    "Exit codes: 0 stopped as asked, 1 failed, 2 usage or run file, 75 the "
    "disk\n"
    "is full: start it again, nothing is lost.\n";

constexpr int kUsageExit = 2;
constexpr int kTemporaryExit = 75;

int Fail(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  return kUsageExit;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace diloco;
  // The memory bound counts what malloc keeps: few arenas, and large buffers go
  // back to the system at once.
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  std::string config_path;
  bool accept = false;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--help" || flag == "-h") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    if (flag == "--version" || (i == 1 && flag == "version")) {
      std::printf("diloco-coordinator %s\n", BuildVersion());
      return 0;
    }
    if (flag == "--accept") {
      accept = true;
      continue;
    }
    if (flag != "--config" && flag != "--log-level") {
      const std::string nearest = NearestName(
          flag, {"--config", "--accept", "--log-level", "--version", "--help"});
      return Fail("diloco-coordinator: unknown argument " + Printable(flag) +
                  (nearest.empty() ? "." : "; did you mean " + nearest + "?") +
                  " See diloco-coordinator --help");
    }
    if (i + 1 == argc) {
      return Fail("diloco-coordinator: " + flag + " needs a value");
    }
    const std::string value = argv[++i];
    if (flag == "--config") {
      config_path = value;
    } else if (LogLevel level; ParseLogLevel(value, &level)) {
      SetLogLevel(level);
    } else {
      return Fail("diloco-coordinator: --log-level " + value +
                  ": one of debug, info, warning, error");
    }
  }
  if (config_path.empty()) {
    return Fail(
        std::string("diloco-coordinator: --config FILE is missing\n\n") +
        kUsage);
  }
  SetLogComponent("coordinator");
  InstallShutdownHandler();
  absl::StatusOr<LoadedRun> loaded =
      LoadRunConfig(FileSystem::Posix(), config_path);
  if (!loaded.ok()) return Fail(std::string(loaded.status().message()));
  for (const std::string& warning : loaded->warnings) {
    DILOCO_LOG(WARNING) << warning;
  }
  auto server = CoordinatorServer::Start(loaded->config, accept);
  if (!server.ok()) {
    DILOCO_LOG(ERROR) << "cannot start: " << server.status().message();
    // A full disk: worth another start once there is room.
    if (!absl::IsResourceExhausted(server.status())) return 1;
    return ShutdownRequested() ? 0 : kTemporaryExit;
  }
  while (!WaitForShutdown(absl::Hours(1))) {
  }
  // Every caller is refused by now; for so long, that all of them hear why.
  if ((*server)->superseded()) absl::SleepFor(absl::Seconds(3));
  (*server)->Shutdown(absl::Seconds(10));
  DILOCO_LOG(INFO) << "stopped";
  return (*server)->superseded() ? 1 : 0;
}

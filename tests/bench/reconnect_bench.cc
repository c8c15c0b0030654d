// How long workers take to find a coordinator that was killed and started
// again: the real diloco-coordinator of this build, and in this process the
// watching and beating half of many workers, each with connections of its own.
//
//   bench_reconnect [--workers 200] [--away 10] [--dir DIR]
//
// All join, the coordinator is killed (SIGKILL) and stays away for so many
// seconds, in which all pauses grow to their longest. Settled: every worker
// has a view of the new start, and a beat of it was answered. Bound: 10 s after
// the coordinator listens again.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/notification.h"
#include "common/base/ids.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "tests/bench/daemon.h"
#include "tests/bench/fake_run.h"
#include "worker/runtime/link.h"
#include "worker/transport/grpc_port.h"

namespace diloco {
namespace {

constexpr absl::Duration kBound = absl::Seconds(10);
constexpr absl::Duration kLook = absl::Milliseconds(10);

struct Flags {
  int workers = 200;
  int away = 10;
  std::string dir = std::filesystem::temp_directory_path();
};

void Pause(absl::Duration pause) {
  const absl::Notification never;
  never.WaitForNotificationWithTimeout(pause);
}

// A worker without a trainer.
struct Site {
  std::unique_ptr<CoordinatorPort> port;
  std::unique_ptr<Link> link;

  bool Sees(uint64_t epoch) const {
    const std::optional<RunView> view = link->view();
    return view.has_value() && view->fencing.epoch == epoch;
  }
};

absl::StatusOr<Site> StartSite(int number, int port) {
  Site site;
  ASSIGN_OR_RETURN(
      site.port,
      MakeGrpcPort({.coordinator = absl::StrCat("127.0.0.1:", port)}));
  JoinCall join;
  join.worker = absl::StrCat("worker-", number);
  join.attempt = RandomBytes(16);
  join.fresh = true;
  join.data_tokens = 1'000'000;
  join.max_token = 1;
  ASSIGN_OR_RETURN(const JoinReply reply, site.port->Join(join));
  Link::Options options;
  options.port = site.port.get();
  options.clock = Clock::Real();
  options.beat_every = reply.beat_every;
  options.stop_requested = [] { return false; };
  site.link = std::make_unique<Link>(std::move(options));
  site.link->Start();
  return site;
}

// When each of them saw that start of the coordinator, from now on.
absl::StatusOr<std::vector<absl::Duration>> AwaitAll(
    const std::vector<Site>& sites, uint64_t epoch, Daemon* daemon) {
  const Instant begin = Clock::Real()->Now();
  std::vector<absl::Duration> times;
  std::vector<bool> seen(sites.size(), false);
  while (times.size() < sites.size()) {
    RETURN_IF_ERROR(daemon->Port().status());
    const absl::Duration passed = Clock::Real()->Now() - begin;
    if (passed > kBenchPatience) {
      return absl::DeadlineExceededError(absl::StrCat(
          times.size(), " of ", sites.size(), " workers see epoch ", epoch));
    }
    for (size_t i = 0; i < sites.size(); ++i) {
      if (seen[i] || !sites[i].Sees(epoch)) continue;
      seen[i] = true;
      times.push_back(passed);
    }
    Pause(kLook);
  }
  return times;
}

absl::Status WriteRunFile(const Flags& flags, int port,
                          const std::string& path) {
  // A lease that no worker outlives silently.
  return WriteFileAtomic(
      FileSystem::Posix(), path,
      absl::StrReplaceAll(FakeRunFile(FakeModel(1'000'000), flags.workers, 8),
                          {{"127.0.0.1:0", absl::StrCat("127.0.0.1:", port)},
                           {"lease: 1h", "lease: 30s"}}));
}

absl::Status Measure(const Flags& flags, const std::string& dir) {
  const std::string config = JoinPath(dir, "run.yaml");
  RETURN_IF_ERROR(WriteRunFile(flags, 0, config));
  auto daemon = std::make_unique<Daemon>(config, JoinPath(dir, "first.log"));
  ASSIGN_OR_RETURN(const int port, daemon->WaitForPort());
  std::vector<Site> sites;
  for (int i = 0; i < flags.workers; ++i) {
    ASSIGN_OR_RETURN(Site site, StartSite(i, port));
    sites.push_back(std::move(site));
  }
  RETURN_IF_ERROR(AwaitAll(sites, 1, daemon.get()).status());
  RETURN_IF_ERROR(WriteRunFile(flags, port, config));
  daemon.reset();
  Pause(absl::Seconds(flags.away));

  const Instant begin = Clock::Real()->Now();
  daemon = std::make_unique<Daemon>(config, JoinPath(dir, "second.log"));
  RETURN_IF_ERROR(daemon->WaitForPort().status());
  const absl::Duration serving = Clock::Real()->Now() - begin;
  ASSIGN_OR_RETURN(const std::vector<absl::Duration> times,
                   AwaitAll(sites, 2, daemon.get()));
  for (const Site& site : sites) {
    site.link->BeatNow();
    if (site.link->away()) {
      return absl::InternalError("a beat of a settled worker was not answered");
    }
  }
  const absl::Duration beaten = Clock::Real()->Now() - begin - serving;
  std::printf(
      "%d workers, coordinator away for %d s: serving %.2f s after its start; "
      "views after %.2f s (half), %.2f s (all); and a beat answered for all "
      "after %.2f s (bound %.0f s)\n",
      flags.workers, flags.away, absl::ToDoubleSeconds(serving),
      absl::ToDoubleSeconds(times[times.size() / 2]),
      absl::ToDoubleSeconds(times.back()), absl::ToDoubleSeconds(beaten),
      absl::ToDoubleSeconds(kBound));
  // All at once: each waits for its long poll.
  std::vector<std::thread> ends;
  for (const Site& site : sites) {
    ends.emplace_back([&site] {
      site.port->Shutdown();
      site.link->Stop();
    });
  }
  for (std::thread& end : ends) end.join();
  if (beaten > kBound) return absl::DeadlineExceededError("over the bound");
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const bool good =
        name == "--dir"       ? !(flags.dir = argv[i + 1]).empty()
        : name == "--workers" ? absl::SimpleAtoi(argv[i + 1], &flags.workers) &&
                                    flags.workers > 0 && flags.workers <= 256
        : name == "--away"
            ? absl::SimpleAtoi(argv[i + 1], &flags.away) && flags.away >= 0
            : false;
    if (!good) {
      std::fprintf(stderr, "%s %s: see the top of reconnect_bench.cc\n",
                   argv[i], argv[i + 1]);
      return 2;
    }
  }
  if (argc % 2 == 0) {
    std::fprintf(stderr, "%s has no value\n", argv[argc - 1]);
    return 2;
  }
  SetLogLevel(LogLevel::kError);
  const std::string dir = JoinPath(
      flags.dir, absl::StrCat("diloco-reconnect-", ToHex(RandomBytes(6))));
  std::filesystem::create_directories(dir);
  const absl::Status status = Measure(flags, dir);
  std::filesystem::remove_all(dir);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace diloco

int main(int argc, char** argv) { return diloco::Main(argc, argv); }

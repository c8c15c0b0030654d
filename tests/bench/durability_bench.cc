// What images and journal add to a run's wall time: 4 fake workers, rounds of
// 30 s, an image every 8 versions; at most 5 %.
//
//   bench_durability [--parameters N] [--rounds N] [--dir DIR]
//
// The training of a round is not waited for: what counts is the time between
// the last accepted update and the published version, of rounds with an image
// (every other one here) and without, as medians. The journal is charged with
// an fsync of its own for each of its records, measured on the same disk,
// though records share them. Added per round = difference / 8 + records *
// fsync, against 30 s. DIR (default: the temporary directory) takes about 70
// bytes a parameter.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/tensor/layout.h"
#include "coordinator/store/journal.h"
#include "tests/bench/daemon.h"
#include "tests/bench/fake_run.h"

namespace diloco {
namespace {

constexpr int kWorkers = 4;
constexpr double kRoundSeconds = 30;
constexpr int kImageEvery = 8;
constexpr double kLimit = 1.05;

struct Flags {
  int64_t parameters = 100'000'000;
  int rounds = 8;
  std::string dir = std::filesystem::temp_directory_path();
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double Now() { return absl::ToDoubleSeconds(Clock::Real()->Now()); }

// When each round's last update was accepted, and its version first seen.
struct Rounds {
  Mutex mu;
  std::vector<double> accepted;
  std::vector<double> published;
};

absl::Status Work(const std::string& name, int port, const FakeUpdate& update,
                  const CancelFlag& cancel, Rounds* rounds) {
  ASSIGN_OR_RETURN(FakeWorker worker,
                   FakeWorker::Join(name, port, &update, &cancel));
  for (size_t round = 0; round < rounds->accepted.size(); ++round) {
    ASSIGN_OR_RETURN(const RunView::Lease lease, worker.WaitForLease());
    RETURN_IF_ERROR(worker.Upload(lease));
    const double accepted = Now();
    RETURN_IF_ERROR(worker.WaitForVersionAfter(lease.base_version));
    const double published = Now();
    MutexLock lock(&rounds->mu);
    rounds->accepted[round] = std::max(rounds->accepted[round], accepted);
    double& first = rounds->published[round];
    first = first == 0 ? published : std::min(first, published);
  }
  return absl::OkStatus();
}

// Of a write of a record's size to a file that grows, with its fsync.
absl::StatusOr<double> FsyncSeconds(const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, FileSystem::Posix()->OpenForWrite(path));
  const std::string record(200, 'x');
  std::vector<double> seconds;
  for (uint64_t i = 0; i < 200; ++i) {
    const double begin = Now();
    RETURN_IF_ERROR(file->WriteAt(i * record.size(), record));
    RETURN_IF_ERROR(file->Sync());
    seconds.push_back(Now() - begin);
  }
  return Median(seconds);
}

absl::StatusOr<bool> Bench(const Flags& flags, const std::string& dir) {
  FileSystem* const fs = FileSystem::Posix();
  const ModelConfig model = FakeModel(flags.parameters);
  RETURN_IF_ERROR(ValidateModel(model));
  ASSIGN_OR_RETURN(const Layout layout, BuildLayout(ModelTensors(model), 1));
  ASSIGN_OR_RETURN(const FakeUpdate update,
                   MakeFakeUpdate(JoinPath(dir, "update"), layout.elements));
  const std::string config = JoinPath(dir, "run.yaml");
  RETURN_IF_ERROR(WriteFileAtomic(fs, config, FakeRunFile(model, kWorkers, 2)));
  Rounds rounds;
  rounds.accepted.resize(flags.rounds);
  rounds.published.resize(flags.rounds);
  {
    Daemon daemon(config, JoinPath(dir, "log"));
    ASSIGN_OR_RETURN(const int port, daemon.WaitForPort());
    CancelFlag failed{false};
    std::vector<absl::Status> results(kWorkers);
    std::vector<std::thread> threads;
    for (int i = 0; i < kWorkers; ++i) {
      threads.emplace_back([&, i] {
        results[i] =
            Work(absl::StrCat("worker-", i), port, update, failed, &rounds);
        if (!results[i].ok()) failed = true;
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& result : results) {
      if (!absl::IsCancelled(result)) RETURN_IF_ERROR(result);
    }
  }
  std::printf("%lld parameters, %d workers; version v published after, s:",
              static_cast<long long>(layout.parameters), kWorkers);
  std::vector<double> with;
  std::vector<double> without;
  for (int i = 0; i < flags.rounds; ++i) {
    const double seconds = rounds.published[i] - rounds.accepted[i];
    (i % 2 == 1 ? with : without).push_back(seconds);
    std::printf(" %s%.2f", i % 2 == 1 ? "image " : "", seconds);
  }
  ASSIGN_OR_RETURN(const double fsync, FsyncSeconds(JoinPath(dir, "probe")));
  ASSIGN_OR_RETURN(
      const Journal::Scanned journal,
      Journal::Scan(fs, JoinPath(dir, "state"),
                    [](const Journal::Record&) { return absl::OkStatus(); }));
  const double records = static_cast<double>(journal.records) / flags.rounds;
  const double image = Median(with) - Median(without);
  const double added = image / kImageEvery + records * fsync;
  const double ratio = 1 + added / kRoundSeconds;
  std::printf(
      "\nan image adds %.2f s; %.1f records a round of %.0f bytes, %.2f ms "
      "each\nadded a round: %.3f s of %.0f: ratio %.4f (limit %.2f) %s\n",
      image, records,
      static_cast<double>(journal.good_bytes) /
          static_cast<double>(journal.records),
      fsync * 1e3, added, kRoundSeconds, ratio, kLimit,
      ratio <= kLimit ? "ok" : "OVER");
  return ratio <= kLimit;
}

bool ParseFlags(int argc, char** argv, Flags* flags) {
  if (argc % 2 == 0) return false;
  for (int i = 1; i < argc; i += 2) {
    const absl::string_view flag = argv[i];
    const absl::string_view value = argv[i + 1];
    if (flag == "--parameters") {
      if (!absl::SimpleAtoi(value, &flags->parameters)) return false;
    } else if (flag == "--rounds") {
      if (!absl::SimpleAtoi(value, &flags->rounds)) return false;
    } else if (flag == "--dir") {
      flags->dir = argv[i + 1];
    } else {
      return false;
    }
  }
  return flags->parameters > 0 && flags->rounds > 1;
}

int Main(int argc, char** argv) {
  Flags flags;
  if (!ParseFlags(argc, argv, &flags)) {
    std::fprintf(stderr,
                 "Usage: bench_durability [--parameters N] [--rounds N] "
                 "[--dir DIR]\n");
    return 2;
  }
  SetLogLevel(LogLevel::kError);
  std::string dir = JoinPath(flags.dir, "diloco-durability-XXXXXX");
  if (mkdtemp(dir.data()) == nullptr) {
    std::perror(dir.c_str());
    return 1;
  }
  const absl::StatusOr<bool> under = Bench(flags, dir);
  std::filesystem::remove_all(dir);
  if (!under.ok()) {
    std::fprintf(stderr, "%s\n", under.status().ToString().c_str());
    return 1;
  }
  return *under ? 0 : 1;
}

}  // namespace
}  // namespace diloco

int main(int argc, char** argv) { return diloco::Main(argc, argv); }

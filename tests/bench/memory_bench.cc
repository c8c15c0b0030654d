// Anonymous memory of the coordinator (RssAnon + RssShmem) against its bound,
// 8 bytes a parameter + 64 MiB, whatever the number of workers: the real
// diloco-coordinator of this build, served by fake workers over gRPC.
//
//   bench_memory [--parameters N] [--workers 1,4,16] [--rounds N] [--dir DIR]
//
// A fake worker is a thread with the worker's own port: it joins, uploads an
// fp16 update in each round and downloads each new version, as all others do at
// the same time. The last round also writes an image. DIR (default: the
// temporary directory) takes 2 bytes a parameter, worker and round, 4 a
// parameter and worker, and 16 to 24 a parameter besides. Not a tmpfs: what the
// coordinator maps of its files would count as RssShmem there.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/tensor/layout.h"
#include "tests/bench/daemon.h"
#include "tests/bench/fake_run.h"

namespace diloco {
namespace {

constexpr double kMiB = 1 << 20;
constexpr absl::Duration kSampleEvery = absl::Milliseconds(20);

struct Flags {
  int64_t parameters = 100'000'000;
  std::vector<int> workers = {1, 4, 16};
  int rounds = 2;
  std::string dir = std::filesystem::temp_directory_path();
};

// What a sample is counted under. The fold begins before the last worker hears
// that its upload was accepted: kUpload has that part of it.
enum Phase { kStart, kUpload, kFold, kDownload, kPhases };

// Samples a daemon's memory on a thread of its own.
class Sampler {
 public:
  explicit Sampler(const Daemon* daemon)
      : daemon_(daemon), thread_([this] { Run(); }) {}
  ~Sampler() { Stop(); }

  std::atomic<bool> listening{false};
  std::atomic<int> uploading{0};
  std::atomic<int> downloading{0};

  std::array<int64_t, kPhases> Stop() {
    if (thread_.joinable()) {
      stop_.Notify();
      thread_.join();
    }
    return peaks_;
  }

 private:
  Phase Now() const {
    if (!listening) return kStart;
    if (uploading > 0) return kUpload;
    return downloading > 0 ? kDownload : kFold;
  }
  void Run() {
    do {
      int64_t& peak = peaks_[Now()];
      peak = std::max(peak, daemon_->AnonymousBytes());
    } while (!stop_.WaitForNotificationWithTimeout(kSampleEvery));
  }

  const Daemon* const daemon_;
  absl::Notification stop_;
  std::array<int64_t, kPhases> peaks_{};
  std::thread thread_;
};

// Sends and fetches `rounds` rounds, counted by `sampler`.
absl::Status Work(const std::string& name, int port, int rounds,
                  const FakeUpdate& update, const std::string& blob_path,
                  const CancelFlag& cancel, Sampler* sampler) {
  ASSIGN_OR_RETURN(FakeWorker worker,
                   FakeWorker::Join(name, port, &update, &cancel));
  for (int round = 0; round < rounds; ++round) {
    ASSIGN_OR_RETURN(const RunView::Lease lease, worker.WaitForLease());
    ++sampler->uploading;
    const absl::Status sent = worker.Upload(lease);
    --sampler->uploading;
    RETURN_IF_ERROR(sent);
    RETURN_IF_ERROR(worker.WaitForVersionAfter(lease.base_version));
    ++sampler->downloading;
    const absl::Status fetched = worker.Fetch(lease.base_version, blob_path);
    --sampler->downloading;
    RETURN_IF_ERROR(fetched);
  }
  return absl::OkStatus();
}

// One run with `workers` workers, in `dir`; the peaks of its phases.
absl::StatusOr<std::array<int64_t, kPhases>> Measure(const Flags& flags,
                                                     const ModelConfig& model,
                                                     const FakeUpdate& update,
                                                     int workers,
                                                     const std::string& dir) {
  FileSystem* const fs = FileSystem::Posix();
  RETURN_IF_ERROR(fs->CreateDirs(dir));
  const std::string config = JoinPath(dir, "run.yaml");
  RETURN_IF_ERROR(
      WriteFileAtomic(fs, config, FakeRunFile(model, workers, flags.rounds)));
  Daemon daemon(config, JoinPath(dir, "log"));
  Sampler sampler(&daemon);
  ASSIGN_OR_RETURN(const int port, daemon.WaitForPort());
  sampler.listening = true;

  CancelFlag failed{false};
  std::vector<absl::Status> results(workers);
  std::vector<std::thread> threads;
  for (int i = 0; i < workers; ++i) {
    threads.emplace_back([&, i] {
      const std::string name = absl::StrCat("worker-", i);
      results[i] = WithContext(Work(name, port, flags.rounds, update,
                                    JoinPath(dir, name), failed, &sampler),
                               name);
      // A round waits for all: without one of them the others never end.
      if (!results[i].ok()) failed = true;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) {
    if (!absl::IsCancelled(result)) RETURN_IF_ERROR(result);
  }
  return sampler.Stop();
}

absl::StatusOr<bool> Bench(const Flags& flags, const std::string& dir) {
  const ModelConfig model = FakeModel(flags.parameters);
  RETURN_IF_ERROR(ValidateModel(model));
  ASSIGN_OR_RETURN(const Layout layout, BuildLayout(ModelTensors(model), 1));
  ASSIGN_OR_RETURN(const FakeUpdate update,
                   MakeFakeUpdate(JoinPath(dir, "update"), layout.elements));
  const double limit = 8.0 * layout.parameters + 64 * kMiB;
  std::printf(
      "%lld parameters, %d rounds; peaks of RssAnon + RssShmem in MiB\n",
      static_cast<long long>(layout.parameters), flags.rounds);
  std::printf(
      "workers    start   upload     fold download |     peak    limit"
      "  ratio\n");
  bool all_under = true;
  for (const int workers : flags.workers) {
    const std::string run_dir = JoinPath(dir, absl::StrCat("run-", workers));
    ASSIGN_OR_RETURN(const auto peaks,
                     Measure(flags, model, update, workers, run_dir));
    std::filesystem::remove_all(run_dir);
    const int64_t peak = *std::max_element(peaks.begin(), peaks.end());
    const bool under = peak <= limit;
    all_under = all_under && under;
    std::printf("%7d", workers);
    for (const int64_t phase : peaks) std::printf(" %8.1f", phase / kMiB);
    std::printf(" | %8.1f %8.1f  %5.3f %s\n", peak / kMiB, limit / kMiB,
                peak / limit, under ? "ok" : "OVER");
    std::fflush(stdout);
  }
  return all_under;
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
    } else if (flag == "--workers") {
      flags->workers.clear();
      for (const absl::string_view count : absl::StrSplit(value, ',')) {
        int workers = 0;
        if (!absl::SimpleAtoi(count, &workers) || workers < 1) return false;
        flags->workers.push_back(workers);
      }
    } else if (flag == "--dir") {
      flags->dir = argv[i + 1];
    } else {
      return false;
    }
  }
  return flags->parameters > 0 && flags->rounds > 0;
}

int Main(int argc, char** argv) {
  Flags flags;
  if (!ParseFlags(argc, argv, &flags)) {
    std::fprintf(stderr,
                 "Usage: bench_memory [--parameters N] [--workers N,...] "
                 "[--rounds N] [--dir DIR]\n");
    return 2;
  }
  // A worker that is queued behind others says so in a warning.
  SetLogLevel(LogLevel::kError);
  std::string dir = JoinPath(flags.dir, "diloco-memory-XXXXXX");
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

// Time from the start of diloco-coordinator until it serves, on the state of a
// run with two workers that was killed: within 3 s plus the time to read the
// images alone; with two fp16 updates of the whole model to fold again, within
// 5 s more.
//
//   bench_restart [--parameters N] [--times N] [--dir DIR]
//
// Then 200,000 facts more in the journal, for what the replay of one costs.
// Each time is the shortest of N starts; what is read was taken out of the page
// cache before. DIR (default: the temporary directory) takes 20 bytes a
// parameter.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/tensor/layout.h"
#include "coordinator/store/fact_codec.h"
#include "coordinator/store/journal.h"
#include "tests/bench/daemon.h"
#include "tests/bench/fake_run.h"

namespace diloco {
namespace {

constexpr int kWorkers = 2;
constexpr int kFacts = 200'000;
constexpr double kLimit = 3;      // Seconds, beside the reading.
constexpr double kFoldLimit = 5;  // More, for the updates.

struct Flags {
  int64_t parameters = 100'000'000;
  int times = 3;
  std::string dir = std::filesystem::temp_directory_path();
};

std::vector<std::string> FilesBelow(const std::string& dir) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  return files;
}

void Evict(const std::string& dir) {
  for (const std::string& path : FilesBelow(dir)) {
    const int fd = open(path.c_str(), O_RDONLY);
    if (fd < 0) continue;
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
  }
}

double SecondsSince(Instant begin) {
  return absl::ToDoubleSeconds(Clock::Real()->Now() - begin);
}

// Of reading the files once, in large pieces.
absl::StatusOr<double> ReadSeconds(const std::string& dir) {
  std::string piece(4 << 20, '\0');
  const Instant begin = Clock::Real()->Now();
  for (const std::string& path : FilesBelow(dir)) {
    ASSIGN_OR_RETURN(const auto file, FileSystem::Posix()->OpenForRead(path));
    ASSIGN_OR_RETURN(const uint64_t size, file->Size());
    for (uint64_t at = 0; at < size; at += piece.size()) {
      RETURN_IF_ERROR(file->ReadAt(
          at, absl::MakeSpan(&piece[0],
                             std::min<uint64_t>(piece.size(), size - at))));
    }
  }
  return SecondsSince(begin);
}

absl::StatusOr<double> StartSeconds(const std::string& config,
                                    const std::string& log) {
  const Instant begin = Clock::Real()->Now();
  Daemon daemon(config, log);
  RETURN_IF_ERROR(daemon.WaitForPort().status());
  return SecondsSince(begin);
}

absl::Status OneRound(const std::string& config, const std::string& log,
                      const FakeUpdate& update) {
  Daemon daemon(config, log);
  ASSIGN_OR_RETURN(const int port, daemon.WaitForPort());
  CancelFlag failed{false};
  std::vector<absl::Status> results(kWorkers);
  std::vector<std::thread> threads;
  for (int i = 0; i < kWorkers; ++i) {
    threads.emplace_back([&, i] {
      results[i] = [&]() -> absl::Status {
        ASSIGN_OR_RETURN(FakeWorker worker,
                         FakeWorker::Join(absl::StrCat("worker-", i), port,
                                          &update, &failed));
        ASSIGN_OR_RETURN(const RunView::Lease lease, worker.WaitForLease());
        RETURN_IF_ERROR(worker.Upload(lease));
        return worker.WaitForVersionAfter(0);
      }();
      if (!results[i].ok()) failed = true;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) {
    if (!absl::IsCancelled(result)) RETURN_IF_ERROR(result);
  }
  return absl::OkStatus();
}

struct Times {
  double read = 0;  // The images alone.
  double start = 0;
};

absl::StatusOr<Times> Measure(const std::string& dir, const std::string& config,
                              int times) {
  Times best = {1e9, 1e9};
  const std::string state = JoinPath(dir, "state");
  for (int i = 0; i < times; ++i) {
    Evict(state);
    ASSIGN_OR_RETURN(const double read, ReadSeconds(JoinPath(state, "images")));
    Evict(state);
    ASSIGN_OR_RETURN(const double start,
                     StartSeconds(config, JoinPath(dir, "log")));
    std::printf("  images read in %.2f s, serves after %.2f s\n", read, start);
    std::fflush(stdout);
    best.read = std::min(best.read, read);
    best.start = std::min(best.start, start);
  }
  return best;
}

// Behind what the journal has: a worker that is lost and returns.
absl::Status AppendFacts(const std::string& state) {
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Journal> journal,
      Journal::Open(FileSystem::Posix(), state,
                    [](const Journal::Record&) { return absl::OkStatus(); }));
  for (int i = 0; i < kFacts / 2; ++i) {
    for (const Fact& fact : {Fact(WorkerDeparted{"worker-0", Departure::kLost,
                                                 "not heard of for 30 s"}),
                             Fact(WorkerReturned{"worker-0"})}) {
      const EncodedFact encoded = EncodeFact(fact);
      journal->Append(encoded.type, encoded.payload);
    }
  }
  return journal->Commit();
}

absl::StatusOr<bool> Bench(const Flags& flags, const std::string& dir) {
  FileSystem* const fs = FileSystem::Posix();
  const ModelConfig model = FakeModel(flags.parameters);
  RETURN_IF_ERROR(ValidateModel(model));
  ASSIGN_OR_RETURN(const Layout layout, BuildLayout(ModelTensors(model), 1));
  ASSIGN_OR_RETURN(const FakeUpdate update,
                   MakeFakeUpdate(JoinPath(dir, "update"), layout.elements));
  const std::string config = JoinPath(dir, "run.yaml");
  // No image but the first.
  RETURN_IF_ERROR(
      WriteFileAtomic(fs, config, FakeRunFile(model, kWorkers, 1000)));
  ASSIGN_OR_RETURN(const double create,
                   StartSeconds(config, JoinPath(dir, "log")));
  std::printf("%lld parameters; a new run serves after %.2f s\nimages\n",
              static_cast<long long>(layout.parameters), create);
  ASSIGN_OR_RETURN(const Times images, Measure(dir, config, flags.times));
  RETURN_IF_ERROR(OneRound(config, JoinPath(dir, "log"), update));
  std::printf("images and %d updates of %.0f MB\n", kWorkers,
              static_cast<double>(update.bytes) / 1e6);
  ASSIGN_OR_RETURN(const Times folds, Measure(dir, config, flags.times));
  RETURN_IF_ERROR(AppendFacts(JoinPath(dir, "state")));
  std::printf("and %d facts\n", kFacts);
  ASSIGN_OR_RETURN(const Times facts, Measure(dir, config, flags.times));
  const double over = images.start - images.read;
  const double more = folds.start - folds.read - over;
  std::printf("start %.2f s = reading %.2f + %.2f (limit %.0f) %s\n",
              images.start, images.read, over, kLimit,
              over <= kLimit ? "ok" : "OVER");
  std::printf("with updates %.2f s: %.2f more (limit %.0f) %s\n", folds.start,
              more, kFoldLimit, more <= kFoldLimit ? "ok" : "OVER");
  std::printf(
      "a fact: %.1f us\n",
      (facts.start - facts.read - folds.start + folds.read) / kFacts * 1e6);
  return over <= kLimit && more <= kFoldLimit;
}

bool ParseFlags(int argc, char** argv, Flags* flags) {
  if (argc % 2 == 0) return false;
  for (int i = 1; i < argc; i += 2) {
    const absl::string_view flag = argv[i];
    const absl::string_view value = argv[i + 1];
    if (flag == "--parameters") {
      if (!absl::SimpleAtoi(value, &flags->parameters)) return false;
    } else if (flag == "--times") {
      if (!absl::SimpleAtoi(value, &flags->times)) return false;
    } else if (flag == "--dir") {
      flags->dir = argv[i + 1];
    } else {
      return false;
    }
  }
  return flags->parameters > 0 && flags->times > 0;
}

int Main(int argc, char** argv) {
  Flags flags;
  if (!ParseFlags(argc, argv, &flags)) {
    std::fprintf(stderr,
                 "Usage: bench_restart [--parameters N] [--times N] "
                 "[--dir DIR]\n");
    return 2;
  }
  SetLogLevel(LogLevel::kError);
  std::string dir = JoinPath(flags.dir, "diloco-restart-XXXXXX");
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

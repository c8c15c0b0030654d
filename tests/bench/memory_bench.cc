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
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "common/base/ids.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/model/model_config.h"
#include "common/tensor/layout.h"
#include "common/tensor/part_file.h"
#include "worker/transport/grpc_port.h"

namespace diloco {
namespace {

constexpr int64_t kHidden = 512;
constexpr int64_t kLayers = 4;
constexpr int64_t kFfn = 1376;
constexpr double kMiB = 1 << 20;
constexpr absl::Duration kSampleEvery = absl::Milliseconds(20);
constexpr absl::Duration kPatience = absl::Minutes(10);

struct Flags {
  int64_t parameters = 100'000'000;
  std::vector<int> workers = {1, 4, 16};
  int rounds = 2;
  std::string dir = std::filesystem::temp_directory_path();
};

// The shape with `parameters` parameters, or a few more: what the blocks lack
// is embedding.
ModelConfig ModelOf(int64_t parameters) {
  ModelConfig model;
  model.layers = kLayers;
  model.hidden = kHidden;
  model.heads = model.kv_heads = 8;
  model.head_dim = kHidden / model.heads;
  model.ffn = kFfn;
  model.tied = true;
  model.max_positions = 128;
  const int64_t blocks =
      kLayers * (4 * kHidden * kHidden + 3 * kHidden * kFfn + 2 * kHidden) +
      kHidden;
  model.vocab =
      std::max<int64_t>(2, (parameters - blocks + kHidden - 1) / kHidden);
  return model;
}

std::string RunFile(const ModelConfig& model, int workers, int rounds) {
  return absl::StrCat("run: {name: memory}\n",  //
                      "model: {layers: ", model.layers,
                      ", hidden: ", model.hidden,                             //
                      ", heads: ", model.heads, ", ffn: ", model.ffn,         //
                      ", vocab: ", model.vocab, ", tied: true}\n",            //
                      "data: {seq_len: ", model.max_positions, "}\n",         //
                      "train: {tokens: 1000000000, batch_tokens: 1024}\n",    //
                      "sync: {interval: 10, deadline: 1h}\n",                 //
                      "join: {wait_for: ", workers, ", lease: 1h}\n",         //
                      "listen: {control: \"127.0.0.1:0\", metrics: none}\n",  //
                      "state: {dir: state, image_every: ", rounds, "}\n");
}

// What a sample is counted under. The fold begins before the last worker hears
// that its upload was accepted: kUpload has that part of it.
enum Phase { kStart, kUpload, kFold, kDownload, kPhases };

// A diloco-coordinator process with its log in a file; killed with this object.
class Daemon {
 public:
  Daemon(const std::string& program, const std::string& config, std::string log)
      : log_(std::move(log)) {
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int fd = open(log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    execl(program.c_str(), program.c_str(), "--config", config.c_str(),
          static_cast<char*>(nullptr));
    _exit(127);
  }
  ~Daemon() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Daemon(const Daemon&) = delete;

  // The port that it logs once it listens; 0 before that.
  absl::StatusOr<int> Port() {
    const absl::StatusOr<std::string> log = ReadFile(FileSystem::Posix(), log_);
    const std::string text = log.ok() ? *log : "";
    if (const size_t at = text.find(" port="); at != std::string::npos) {
      return std::atoi(text.c_str() + at + 6);
    }
    if (pid_ <= 0 || waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      return absl::InternalError(
          absl::StrCat("diloco-coordinator ended: ", text));
    }
    return 0;
  }

  // RssAnon + RssShmem, in bytes; 0 when it is gone.
  int64_t AnonymousBytes() const {
    std::FILE* const file =
        std::fopen(absl::StrCat("/proc/", pid_, "/status").c_str(), "r");
    if (file == nullptr) return 0;
    int64_t sum = 0;
    char line[256];
    while (std::fgets(line, sizeof(line), file) != nullptr) {
      long long kib = 0;
      if (std::sscanf(line, "RssAnon: %lld", &kib) == 1 ||
          std::sscanf(line, "RssShmem: %lld", &kib) == 1) {
        sum += kib * 1024;
      }
    }
    std::fclose(file);
    return sum;
  }

 private:
  const std::string log_;
  pid_t pid_ = -1;
};

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

// The update that all workers send in all rounds.
struct Update {
  std::unique_ptr<ReadableFile> file;
  uint64_t bytes = 0;
  Digest digest;
};

absl::StatusOr<Update> MakeUpdate(const std::string& path, int64_t elements) {
  FileSystem* const fs = FileSystem::Posix();
  std::vector<float> tile(kFrameElements);
  for (size_t i = 0; i < tile.size(); ++i) {
    tile[i] = static_cast<float>(static_cast<int>(i % 255) - 127) * 0x1p-17f;
  }
  PartHeader header;
  header.codec = Codec::kFp16;
  header.elements = elements;
  ASSIGN_OR_RETURN(const auto out, fs->OpenForWrite(path));
  PartWriter writer(out.get(), header);
  for (int64_t frame = 0; frame < FrameCount(elements); ++frame) {
    RETURN_IF_ERROR(writer.Append(absl::MakeConstSpan(tile).first(
        std::min(kFrameElements, elements - frame * kFrameElements))));
  }
  Update update;
  ASSIGN_OR_RETURN(update.digest, writer.Finish());
  update.bytes = writer.file_bytes();
  ASSIGN_OR_RETURN(update.file, fs->OpenForRead(path));
  return update;
}

class FakeWorker {
 public:
  FakeWorker(std::string name, int port, const Update* update,
             std::string blob_path, Sampler* sampler, const CancelFlag* cancel)
      : name_(std::move(name)),
        address_(absl::StrCat("127.0.0.1:", port)),
        update_(*update),
        blob_path_(std::move(blob_path)),
        sampler_(*sampler),
        cancel_(*cancel) {}

  absl::Status Run(int rounds) {
    GrpcPortOptions options;
    options.coordinator = address_;
    // The machine may be busy with all the others.
    options.control_deadline = kPatience;
    ASSIGN_OR_RETURN(port_, MakeGrpcPort(options));
    JoinCall join;
    join.worker = name_;
    join.attempt = RandomBytes(16);
    join.fresh = true;
    join.data_tokens = 1'000'000;
    join.max_token = 1;
    RETURN_IF_ERROR(port_->Join(join).status());
    for (int round = 0; round < rounds; ++round) RETURN_IF_ERROR(Round());
    return absl::OkStatus();
  }

 private:
  template <typename Done>
  absl::StatusOr<RunView> WatchUntil(Done done) {
    uint64_t revision = 0;
    const Instant give_up = Clock::Real()->Now() + kPatience;
    while (Clock::Real()->Now() < give_up) {
      if (cancel_) return absl::CancelledError("another worker failed");
      ASSIGN_OR_RETURN(const RunView view,
                       port_->Watch(revision, absl::Seconds(1)));
      revision = view.revision;
      if (!view.fragments.empty() && done(view)) return view;
    }
    return absl::DeadlineExceededError(
        absl::StrCat("no progress after revision ", revision));
  }

  absl::Status Round() {
    ASSIGN_OR_RETURN(const RunView open, WatchUntil([](const RunView& view) {
                       return !view.leases.empty() && !view.leases[0].delivered;
                     }));
    const RunView::Lease& lease = open.leases[0];
    UpdateOffer offer;
    offer.round = lease.round;
    offer.base_version = lease.base_version;
    offer.base_digest = lease.base_digest;
    offer.bytes = update_.bytes;
    offer.digest = update_.digest;
    offer.tokens = 1024 * lease.steps;
    offer.steps = lease.steps;
    offer.loss = 4.0;
    ++sampler_.uploading;
    const absl::StatusOr<UploadOutcome> outcome =
        port_->Upload(offer, *update_.file, cancel_);
    --sampler_.uploading;
    RETURN_IF_ERROR(outcome.status());
    if (outcome->kind != UploadOutcome::Kind::kAccepted) {
      return absl::InternalError(
          absl::StrCat("update not accepted: ", outcome->reason));
    }
    RETURN_IF_ERROR(WatchUntil([&](const RunView& view) {
                      return view.fragments[0].version > lease.base_version;
                    }).status());
    return Fetch(lease.base_version);
  }

  absl::Status Fetch(uint64_t have) {
    ASSIGN_OR_RETURN(const std::vector<RemoteFile> files,
                     port_->Resolve(0, have));
    for (const RemoteFile& file : files) {
      ++sampler_.downloading;
      const absl::Status fetched =
          port_->Download(file.digest, file.bytes, blob_path_, cancel_);
      --sampler_.downloading;
      RETURN_IF_ERROR(fetched);
      RETURN_IF_ERROR(FileSystem::Posix()->Remove(blob_path_));
    }
    return absl::OkStatus();
  }

  const std::string name_;
  const std::string address_;
  const Update& update_;
  const std::string blob_path_;
  Sampler& sampler_;
  std::unique_ptr<CoordinatorPort> port_;
  const CancelFlag& cancel_;
};

absl::StatusOr<int> WaitForPort(Daemon& daemon) {
  const absl::Notification never;
  const Instant give_up = Clock::Real()->Now() + kPatience;
  while (Clock::Real()->Now() < give_up) {
    ASSIGN_OR_RETURN(const int port, daemon.Port());
    if (port != 0) return port;
    never.WaitForNotificationWithTimeout(kSampleEvery);
  }
  return absl::DeadlineExceededError("diloco-coordinator does not listen");
}

// One run with `workers` workers, in `dir`; the peaks of its phases.
absl::StatusOr<std::array<int64_t, kPhases>> Measure(const Flags& flags,
                                                     const ModelConfig& model,
                                                     const Update& update,
                                                     int workers,
                                                     const std::string& dir) {
  FileSystem* const fs = FileSystem::Posix();
  RETURN_IF_ERROR(fs->CreateDirs(dir));
  const std::string config = JoinPath(dir, "run.yaml");
  RETURN_IF_ERROR(
      WriteFileAtomic(fs, config, RunFile(model, workers, flags.rounds)));
  const std::string program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() /
      "diloco-coordinator";
  Daemon daemon(program, config, JoinPath(dir, "log"));
  Sampler sampler(&daemon);
  ASSIGN_OR_RETURN(const int port, WaitForPort(daemon));
  sampler.listening = true;

  CancelFlag failed{false};
  std::vector<absl::Status> results(workers);
  std::vector<std::thread> threads;
  for (int i = 0; i < workers; ++i) {
    threads.emplace_back([&, i] {
      const std::string name = absl::StrCat("worker-", i);
      FakeWorker worker(name, port, &update, JoinPath(dir, name), &sampler,
                        &failed);
      results[i] = WithContext(worker.Run(flags.rounds), name);
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
  const ModelConfig model = ModelOf(flags.parameters);
  RETURN_IF_ERROR(ValidateModel(model));
  ASSIGN_OR_RETURN(const Layout layout, BuildLayout(ModelTensors(model), 1));
  ASSIGN_OR_RETURN(const Update update,
                   MakeUpdate(JoinPath(dir, "update"), layout.elements));
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

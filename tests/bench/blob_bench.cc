// Uploads beside a bare gRPC stream of the same bytes over loopback.
//
//   bench_blob [--mib N] [--rounds N] [--dir DIR]
//
// Product: from a worker's file, read and checksummed, through the worker's own
// port to the real diloco-coordinator of this build, until the spool is
// screened, verified, fsynced and committed to the journal. Bare: a client
// stream of messages of one MiB, sent from memory and dropped by a server in
// another process. Both take turns; the ratio of the medians is the claim.
#include <grpcpp/server_builder.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/protocol.h"
#include "common/rpc/status_codec.h"
#include "common/tensor/layout.h"
#include "diloco/v1/blob.grpc.pb.h"
#include "tests/bench/daemon.h"
#include "tests/bench/fake_run.h"

namespace diloco {
namespace {

constexpr double kLimit = 0.5;
constexpr uint64_t kMiB = 1 << 20;

struct Flags {
  int64_t mib = 256;
  int rounds = 7;
  std::string dir = std::filesystem::temp_directory_path();
};

class DroppingBlob final : public v1::Blob::Service {
  grpc::Status Write(grpc::ServerContext*,
                     grpc::ServerReader<v1::WriteChunk>* reader,
                     v1::WriteResponse*) override {
    v1::WriteChunk chunk;
    while (reader->Read(&chunk)) {
    }
    return grpc::Status::OK;
  }
};

// A server that drops what it gets, as a child process; killed with this
// object. Construct before anything else uses gRPC: it forks.
class BareServer {
 public:
  BareServer() {
    int fds[2];
    if (pipe(fds) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      DroppingBlob service;
      grpc::ServerBuilder builder;
      int port = 0;
      builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                               &port);
      builder.RegisterService(&service);
      const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
      if (write(fds[1], &port, sizeof(port)) != sizeof(port)) _exit(1);
      server->Wait();
      _exit(0);
    }
    close(fds[1]);
    if (read(fds[0], &port_, sizeof(port_)) != sizeof(port_)) port_ = 0;
    close(fds[0]);
  }
  ~BareServer() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  BareServer(const BareServer&) = delete;

  int port() const { return port_; }

 private:
  pid_t pid_ = -1;
  int port_ = 0;
};

absl::StatusOr<double> TimeBare(v1::Blob::Stub* stub, uint64_t bytes) {
  v1::WriteChunk chunk;
  chunk.mutable_data()->assign(kMiB, 'x');
  grpc::ClientContext context;
  v1::WriteResponse response;
  const Instant start = Clock::Real()->Now();
  const auto writer = stub->Write(&context, &response);
  for (uint64_t sent = 0; sent < bytes; sent += chunk.data().size()) {
    chunk.mutable_data()->resize(std::min(kMiB, bytes - sent));
    if (!writer->Write(chunk)) break;
  }
  writer->WritesDone();
  RETURN_IF_ERROR(FromGrpcStatus(writer->Finish()));
  return absl::ToDoubleSeconds(Clock::Real()->Now() - start);
}

absl::StatusOr<double> TimeUpload(FakeWorker* worker) {
  ASSIGN_OR_RETURN(const RunView::Lease lease, worker->WaitForLease());
  const Instant start = Clock::Real()->Now();
  RETURN_IF_ERROR(worker->Upload(lease));
  const double took = absl::ToDoubleSeconds(Clock::Real()->Now() - start);
  // The fold runs by itself: not beside the other stream.
  RETURN_IF_ERROR(worker->WaitForVersionAfter(lease.base_version));
  return took;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

absl::StatusOr<double> Bench(const Flags& flags, const std::string& dir,
                             int bare_port) {
  const ModelConfig model = FakeModel(flags.mib * kMiB / 2);
  RETURN_IF_ERROR(ValidateModel(model));
  ASSIGN_OR_RETURN(const Layout layout, BuildLayout(ModelTensors(model), 1));
  ASSIGN_OR_RETURN(const FakeUpdate update,
                   MakeFakeUpdate(JoinPath(dir, "update"), layout.elements));
  const std::string config = JoinPath(dir, "run.yaml");
  RETURN_IF_ERROR(WriteFileAtomic(FileSystem::Posix(), config,
                                  FakeRunFile(model, 1, 1000)));
  Daemon daemon(config, JoinPath(dir, "log"));
  ASSIGN_OR_RETURN(const int port, daemon.WaitForPort());
  const CancelFlag never{false};
  ASSIGN_OR_RETURN(FakeWorker worker,
                   FakeWorker::Join("worker", port, &update, &never));
  const auto stub = v1::Blob::NewStub(
      MakeChannel(absl::StrCat("127.0.0.1:", bare_port), ChannelKind::kBulk));

  // Once each to warm up.
  RETURN_IF_ERROR(TimeBare(stub.get(), update.bytes).status());
  RETURN_IF_ERROR(TimeUpload(&worker).status());
  std::vector<double> bare, product;
  for (int i = 0; i < flags.rounds; ++i) {
    ASSIGN_OR_RETURN(bare.emplace_back(), TimeBare(stub.get(), update.bytes));
    ASSIGN_OR_RETURN(product.emplace_back(), TimeUpload(&worker));
  }
  const double mib = static_cast<double>(update.bytes) / kMiB;
  std::printf("%.0f MiB, %d rounds; median (best) in MiB/s\n", mib,
              flags.rounds);
  const auto print = [mib](const char* name, const std::vector<double>& times) {
    std::printf("%-28s %7.0f (%.0f)\n", name, mib / Median(times),
                mib / *std::min_element(times.begin(), times.end()));
  };
  print("bare stream, memory to drop", bare);
  print("upload, file to commit", product);
  return Median(bare) / Median(product);
}

bool ParseFlags(int argc, char** argv, Flags* flags) {
  if (argc % 2 == 0) return false;
  for (int i = 1; i < argc; i += 2) {
    const absl::string_view flag = argv[i];
    const absl::string_view value = argv[i + 1];
    if (flag == "--mib") {
      if (!absl::SimpleAtoi(value, &flags->mib)) return false;
    } else if (flag == "--rounds") {
      if (!absl::SimpleAtoi(value, &flags->rounds)) return false;
    } else if (flag == "--dir") {
      flags->dir = argv[i + 1];
    } else {
      return false;
    }
  }
  return flags->mib >= 32 && flags->rounds > 0;
}

int Main(int argc, char** argv) {
  Flags flags;
  if (!ParseFlags(argc, argv, &flags)) {
    std::fprintf(stderr,
                 "Usage: bench_blob [--mib N, from 32] [--rounds N] "
                 "[--dir DIR]\n");
    return 2;
  }
  SetLogLevel(LogLevel::kError);
  const BareServer bare;
  std::string dir = JoinPath(flags.dir, "diloco-blob-XXXXXX");
  if (mkdtemp(dir.data()) == nullptr) {
    std::perror(dir.c_str());
    return 1;
  }
  const absl::StatusOr<double> ratio = Bench(flags, dir, bare.port());
  std::filesystem::remove_all(dir);
  if (!ratio.ok()) {
    std::fprintf(stderr, "%s\n", ratio.status().ToString().c_str());
    return 1;
  }
  std::printf("ratio %.2f, at least %.2f: %s\n", *ratio, kLimit,
              *ratio >= kLimit ? "ok" : "UNDER");
  return *ratio >= kLimit ? 0 : 1;
}

}  // namespace
}  // namespace diloco

int main(int argc, char** argv) { return diloco::Main(argc, argv); }

// A coordinator's services over a fake coordinator, reached by a worker's port
// through a proxy.
#ifndef TESTS_COMPONENT_SERVICE_SERVICE_FIXTURE_H_
#define TESTS_COMPONENT_SERVICE_SERVICE_FIXTURE_H_

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/io/digest.h"
#include "common/io/file_system.h"
#include "coordinator/service/grpc_server.h"
#include "tests/component/service/fake_coordinator.h"
#include "tests/support/delaying_proxy.h"
#include "tests/support/temp_dir.h"
#include "worker/transport/grpc_port.h"

namespace diloco {

class ServiceFixture {
 public:
  ServiceFixture() {
    auto started = GrpcServer::Start(&fake, "127.0.0.1:0");
    DILOCO_CHECK(started.ok()) << started.status().ToString();
    server = *std::move(started);
    proxy = std::make_unique<DelayingProxy>(server->port());
    port = MakePort();
  }
  ~ServiceFixture() { server->Shutdown(absl::Seconds(1)); }

  GrpcPortOptions PortOptions() const {
    GrpcPortOptions options;
    options.coordinator = absl::StrCat("127.0.0.1:", proxy->port());
    options.retry_initial = absl::Milliseconds(10);
    options.retry_max = absl::Milliseconds(50);
    return options;
  }

  std::unique_ptr<CoordinatorPort> MakePort() const {
    auto made = MakeGrpcPort(PortOptions());
    DILOCO_CHECK(made.ok()) << made.status().ToString();
    return *std::move(made);
  }

  static JoinCall Call() {
    JoinCall call;
    call.worker = "a";
    call.attempt = std::string(16, 'A');
    call.max_token = 255;
    return call;
  }

  // Joins through `port`.
  absl::StatusOr<JoinReply> Join() { return port->Join(Call()); }

  FakeCoordinator fake;
  std::unique_ptr<GrpcServer> server;
  std::unique_ptr<DelayingProxy> proxy;
  std::unique_ptr<CoordinatorPort> port;
};

// Bytes without a pattern that a resumed transfer could hide behind.
inline std::string SampleBytes(size_t size) {
  std::string bytes(size, '\0');
  uint64_t state = 88172645463325252ull;
  for (char& c : bytes) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    c = static_cast<char>(state >> 32);
  }
  return bytes;
}

// A file with `bytes` and the offer that describes it.
struct SampleUpdate {
  SampleUpdate(const TempDir& dir, const std::string& bytes) {
    const std::string path = dir.File("update");
    DILOCO_CHECK(WriteFileAtomic(FileSystem::Posix(), path, bytes).ok());
    file = *FileSystem::Posix()->OpenForRead(path);
    offer.round = FakeCoordinator::kRound;
    offer.base_version = 2;
    offer.base_digest = Sha256("base");
    offer.bytes = bytes.size();
    offer.digest = BlockDigest(bytes);
    offer.tokens = 25600;
    offer.steps = 25;
    offer.loss = 3.5;
  }
  UpdateOffer offer;
  std::unique_ptr<ReadableFile> file;
};

inline bool Has(absl::string_view text, absl::string_view part) {
  return text.find(part) != absl::string_view::npos;
}

}  // namespace diloco

#endif  // TESTS_COMPONENT_SERVICE_SERVICE_FIXTURE_H_

// A worker's way to its coordinator in a simulation: the CoordinatorPort over
// a Wire, without messages. Fencing is judged as over gRPC; uploads go through
// begin, chunks, finish, and begin again until there is an outcome.
#ifndef WORKER_SIMULATE_SIMULATED_PORT_H_
#define WORKER_SIMULATE_SIMULATED_PORT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/simulate/wire.h"
#include "worker/transport/coordinator_port.h"
#include "worker/transport/fencing_guard.h"

namespace diloco::sim {

class SimulatedPort final : public CoordinatorPort {
 public:
  struct Options {
    FiberWorld* world = nullptr;  // Outlives the port, as the others do.
    Wire* wire = nullptr;
    FileSystem* fs = nullptr;         // The worker's.
    std::function<double()> uniform;  // 0 to 1, for the jitter of retries.
    int worker = 0;
    uint64_t chunk_bytes = 1 << 20;  // Of uploads.
    // Before an update is sent, with its whole content.
    std::function<void(const UpdateOffer&, const std::string& content)> offered;
    std::function<void(const UpdateOffer&, const UploadOutcome&)> settled;
    std::function<void(const ProgressReport&)> reported;
  };

  explicit SimulatedPort(Options options);

  // The agent waits for one of its own calls: not a watch or a beat.
  bool busy() const { return busy_ > 0; }
  // The process ends: nothing is sent any more and no answer comes.
  void Kill() { client_.alive = false; }

  absl::StatusOr<JoinReply> Join(const JoinCall& call) override;
  absl::StatusOr<RunView> Watch(uint64_t known_revision,
                                absl::Duration max_wait) override;
  absl::StatusOr<uint64_t> Report(const ProgressReport& report) override;
  absl::StatusOr<std::vector<RemoteFile>> Resolve(
      uint32_t fragment, std::optional<uint64_t> have_version) override;
  absl::Status ReportEval(uint64_t version, uint32_t slice, double loss_sum,
                          uint64_t tokens) override;
  absl::Status Leave(const std::string& reason) override;
  absl::StatusOr<UploadOutcome> Upload(const UpdateOffer& offer,
                                       const ReadableFile& file,
                                       const CancelFlag& cancel) override;
  absl::Status Download(const Digest& digest, uint64_t bytes,
                        const std::string& path,
                        const CancelFlag& cancel) override;
  void Shutdown() override { client_.shut_down = true; }
  // Of files; control messages count as nothing.
  Traffic traffic() const override { return traffic_; }

 private:
  template <typename T>
  using Handler =
      std::function<void(const std::shared_ptr<Server>&, Done<T> done)>;
  template <typename T>
  absl::StatusOr<T> Control(Message message, absl::Duration deadline,
                            Handler<T> handle);
  // On a fiber of the coordinator: what it does there may wait.
  template <typename T>
  absl::StatusOr<T> Bulk(
      const Wire::Call& call,
      std::function<absl::StatusOr<T>(Server&, bool damaged)> handle);
  absl::StatusOr<std::optional<UploadOutcome>> TryUpload(
      const UpdateOffer& offer, const std::string& content,
      const CancelFlag& cancel, bool* permanent);

  const Options options_;
  Client client_;
  FencingGuard guard_;
  std::string session_;
  Traffic traffic_;
  int busy_ = 0;
};

}  // namespace diloco::sim

#endif  // WORKER_SIMULATE_SIMULATED_PORT_H_

// A worker's way to its coordinator in a simulation: the CoordinatorPort over
// the simulated network. Fencing is judged as over gRPC; uploads go through
// begin, chunks, finish, and begin again until there is an outcome.
#ifndef TESTS_SIM_SIM_PORT_H_
#define TESTS_SIM_SIM_PORT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/network.h"
#include "worker/transport/coordinator_port.h"
#include "worker/transport/fencing_guard.h"

namespace diloco::sim {

class SimPort final : public CoordinatorPort {
 public:
  struct Hooks {
    // Before an update is sent, with its whole content.
    std::function<void(const UpdateOffer&, const std::string& content)> offered;
    std::function<void(const UpdateOffer&, const UploadOutcome&)> settled;
    std::function<void(const ProgressReport&)> reported;
  };
  // What the calls for one update and the version after it take on average:
  // begin, chunks, finish, resolve, read.
  static absl::Duration MeanTransfer(uint64_t update_bytes);

  SimPort(FiberWorld* world, Network* network, FileSystem* fs, Stream* stream,
          int worker, Hooks hooks);

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
  Traffic traffic() const override { return {}; }

 private:
  template <typename T>
  absl::StatusOr<T> Control(Message message, absl::Duration deadline,
                            Network::Handler<T> handle);
  // On a fiber of the coordinator: what it does there may wait.
  template <typename T>
  absl::StatusOr<T> Bulk(
      Message message, const CancelFlag& cancel,
      std::function<absl::StatusOr<T>(Server&, bool corrupt)> handle);
  absl::StatusOr<std::optional<UploadOutcome>> TryUpload(
      const UpdateOffer& offer, const std::string& content,
      const CancelFlag& cancel, bool* permanent);

  FiberWorld* const world_;
  Network* const network_;
  FileSystem* const fs_;
  Stream* const stream_;
  const Hooks hooks_;
  Client client_;
  FencingGuard guard_;
  std::string session_;
  int busy_ = 0;
};

}  // namespace diloco::sim

#endif  // TESTS_SIM_SIM_PORT_H_

// The network of a simulation: calls between workers and the coordinator that
// take time and may be lost, repeated, late or cut off, as the plan says.
#ifndef TESTS_SIM_NETWORK_H_
#define TESTS_SIM_NETWORK_H_

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/fiber_world.h"
#include "tests/sim/plan.h"
#include "worker/simulate/stream.h"
#include "worker/simulate/wire.h"

namespace diloco::sim {

class Network final : public Wire {
 public:
  // A request and its reply take so long on average when nothing goes wrong.
  static constexpr absl::Duration kMeanTrip = absl::Milliseconds(60);

  Network(FiberWorld* world, uint64_t seed, int workers);

  void set_server(std::shared_ptr<Server> server) {
    server_ = std::move(server);
  }
  // Its process has ended: those who wait for answers find out soon.
  void ServerEnded(Server& server);

  void Cut(int worker, absl::Duration lasts);
  bool IsCut(int worker) const;
  // For the next call of the fault's kind on its link.
  void Arm(const Fault& fault);

  absl::StatusOr<std::any> Send(const Client& client, const Call& call,
                                Handler handler) override;

  uint64_t calls() const { return calls_; }

 private:
  struct Armed {
    bool lose_request = false;
    bool lose_reply = false;
    bool corrupt = false;
    std::optional<absl::Duration> late;
    std::optional<absl::Duration> again;
  };
  struct Trip : Armed {
    absl::Duration out;
    absl::Duration back;
  };
  Trip DrawTrip(int worker, Message message);
  Stream& StreamFor(int worker, Message message) {
    return streams_[static_cast<size_t>(worker * kMessages) +
                    static_cast<size_t>(message)];
  }

  FiberWorld* const world_;
  std::shared_ptr<Server> server_;
  std::vector<Stream> streams_;  // By link and kind.
  std::vector<Armed> armed_;     // Likewise.
  std::vector<Instant> cut_until_;
  uint64_t calls_ = 0;
  // What callers wait for is told when the server's process ends.
  std::vector<std::weak_ptr<Answer>> waiting_;
};

}  // namespace diloco::sim

#endif  // TESTS_SIM_NETWORK_H_

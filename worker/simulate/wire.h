// What lies between simulated workers and their coordinator: calls that take
// virtual time. A SimulatedPort calls through it; LineWire is a network on
// which nothing goes wrong, tests/sim has one that loses and repeats.
#ifndef WORKER_SIMULATE_WIRE_H_
#define WORKER_SIMULATE_WIRE_H_

#include <any>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "common/base/fiber_world.h"
#include "common/io/file_system.h"
#include "coordinator/runtime/coordinator.h"
#include "worker/transport/coordinator_port.h"

namespace diloco::sim {

// What the calls between a worker and its coordinator are.
enum class Message {
  kJoin,
  kWatch,
  kBeat,
  kResolve,
  kEval,
  kLeave,
  kBegin,
  kWrite,
  kFinish,
  kRead,
};
inline constexpr int kMessages = 10;

// One life of the coordinator's process.
struct Server {
  std::shared_ptr<Coordinator> coordinator;
  FileSystem* fs = nullptr;
  FiberWorld::Group group = 0;
  bool alive = true;  // Once false, no reply leaves any more.
};

// One life of a worker's process.
struct Client {
  int worker = 0;
  bool alive = true;
  bool shut_down = false;
};

class Wire {
 public:
  virtual ~Wire() = default;

  struct Call {
    Message message = Message::kJoin;
    absl::Duration deadline;
    const CancelFlag* cancel = nullptr;  // May be null.
    // Of files; control messages count as nothing.
    uint64_t bytes_out = 0;
    uint64_t bytes_back = 0;
  };
  using Reply = std::function<void(absl::StatusOr<std::any>)>;
  // Called between fibers, with the server alive. `damaged`: what came is to be
  // taken as damaged on the way.
  using Handler =
      std::function<void(const std::shared_ptr<Server>&, bool damaged, Reply)>;
  // What the handler replies, or UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED.
  // Waits on the caller's fiber.
  virtual absl::StatusOr<std::any> Send(const Client& client, const Call& call,
                                        Handler handler) = 0;
};

// The answer to a call, which the caller's fiber waits for.
class Answer {
 public:
  explicit Answer(FiberWorld* world) : world_(world), changed_(world) {}
  // The first one counts.
  void Set(absl::StatusOr<std::any> what);
  absl::StatusOr<std::any> Await(const Client& client, const Wire::Call& call);

 private:
  FiberWorld* const world_;
  Mutex mu_;
  WaitPoint changed_;
  std::optional<absl::StatusOr<std::any>> value_ ABSL_GUARDED_BY(mu_);
};

// Whether the client's process would send anything at all.
inline bool MaySend(const Client& client) {
  return client.alive && !client.shut_down;
}
absl::Status EndedByCaller();

}  // namespace diloco::sim

#endif  // WORKER_SIMULATE_WIRE_H_

// The network of a simulation: calls between workers and the coordinator that
// take time and may be lost, repeated, late or cut off, as the plan says. The
// fibers that call wait here for their answers.
#ifndef TESTS_SIM_NETWORK_H_
#define TESTS_SIM_NETWORK_H_

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/runtime/coordinator.h"
#include "tests/sim/fiber_world.h"
#include "tests/sim/plan.h"
#include "tests/sim/stream.h"
#include "worker/transport/coordinator_port.h"

namespace diloco::sim {

// One life of the coordinator's process.
struct Server {
  std::shared_ptr<Coordinator> coordinator;
  FileSystem* fs = nullptr;
  FiberWorld::Group group = 0;
  bool alive = true;  // Once false, no reply leaves any more.
  // What callers wait for is told when the process ends.
  std::vector<std::weak_ptr<std::function<void()>>> on_end;
};

// One life of a worker's process.
struct Client {
  int worker = 0;
  bool alive = true;
  bool shut_down = false;
};

class Network {
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

  // What `handle` answers, or UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED;
  // `cancel` may be null.
  // `handle` is called between fibers, with the server alive. `corrupt` is told
  // when the plan damages what is on the way.
  template <typename T>
  using Handler = std::function<void(std::shared_ptr<Server>, bool corrupt,
                                     std::function<void(absl::StatusOr<T>)>)>;
  template <typename T>
  absl::StatusOr<T> Call(const Client& client, Message message,
                         absl::Duration deadline, const CancelFlag* cancel,
                         Handler<T> handle);

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
  template <typename T>
  struct Answer {
    explicit Answer(Threads* threads) : changed(threads) {}
    void Set(absl::StatusOr<T> what) {
      MutexLock lock(&mu);
      if (!value.has_value()) value = std::move(what);
      changed.SignalAll();
    }
    Mutex mu;
    WaitPoint changed;
    std::optional<absl::StatusOr<T>> value;
    std::shared_ptr<std::function<void()>> on_end;
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
};

template <typename T>
absl::StatusOr<T> Network::Call(const Client& client, Message message,
                                absl::Duration deadline,
                                const CancelFlag* cancel, Handler<T> handle) {
  const absl::Duration look =
      cancel == nullptr ? absl::Seconds(1) : absl::Milliseconds(100);
  if (!client.alive || client.shut_down) {
    return absl::CancelledError("ended by the caller");
  }
  ++calls_;
  const int worker = client.worker;
  const Trip trip = DrawTrip(worker, message);
  auto answer = std::make_shared<Answer<T>>(world_);
  answer->on_end = std::make_shared<std::function<void()>>(
      [answer_of = std::weak_ptr<Answer<T>>(answer)] {
        if (const auto waiting = answer_of.lock()) {
          waiting->Set(absl::UnavailableError("the connection was reset"));
        }
      });
  const auto arrive = [this, worker, trip, answer, handle](bool first) {
    if (IsCut(worker)) return;
    const std::shared_ptr<Server> server = server_;
    if (server == nullptr || !server->alive) {
      if (first) {
        world_->After(trip.back, [answer] {
          answer->Set(absl::UnavailableError("connection refused"));
        });
      }
      return;
    }
    if (first) server->on_end.push_back(answer->on_end);
    handle(server, first && trip.corrupt,
           [this, worker, trip, answer, server, first](absl::StatusOr<T> what) {
             // What a process decided and did not live to say was not said; the
             // answer to a repeated call goes nowhere.
             if (!server->alive || !first) return;
             world_->After(trip.back, [this, worker, trip, answer,
                                       what = std::move(what)] {
               if (IsCut(worker)) return;
               if (trip.lose_reply) {
                 return answer->Set(
                     absl::UnavailableError("the connection was lost"));
               }
               answer->Set(what);
             });
           });
  };
  if (trip.lose_request) {
    world_->After(trip.out, [answer] {
      answer->Set(absl::UnavailableError("the connection was lost"));
    });
  } else {
    world_->After(trip.out, [arrive] { arrive(true); });
  }
  if (trip.again.has_value()) {
    world_->After(trip.out + *trip.again, [arrive] { arrive(false); });
  }
  const Instant end = world_->Now() + deadline;
  MutexLock lock(&answer->mu);
  while (true) {
    if (answer->value.has_value()) return *std::move(answer->value);
    if (!client.alive || client.shut_down || (cancel != nullptr && *cancel)) {
      return absl::CancelledError("ended by the caller");
    }
    const absl::Duration left = end - world_->Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError("no answer in time");
    }
    answer->changed.WaitFor(&answer->mu, std::min(left, look));
  }
}

}  // namespace diloco::sim

#endif  // TESTS_SIM_NETWORK_H_

// The run of agent_run.h in virtual time: coordinator and agents are fibers of
// the test's thread, over a wire without faults. For what depends on how long
// steps take.
//
//   VirtualRun run(fixture);
//   VirtualWorker& slow = run.AddWorker(0, absl::Seconds(60));  // A step.
//   run.Until([&] { return run.Status().fragments[0].version == 3; });
#ifndef TESTS_COMPONENT_AGENT_VIRTUAL_RUN_H_
#define TESTS_COMPONENT_AGENT_VIRTUAL_RUN_H_

#include <any>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/fiber_world.h"
#include "tests/component/agent/agent_run.h"
#include "worker/simulate/simulated_port.h"

namespace diloco {

// Every call takes 20 ms and arrives.
class CalmWire final : public sim::Wire {
 public:
  CalmWire(FiberWorld* world, const std::shared_ptr<sim::Server>* server)
      : world_(world), server_(server) {}

  absl::StatusOr<std::any> Send(const sim::Client& client, const Call& call,
                                Handler handler) override {
    if (!sim::MaySend(client)) return sim::EndedByCaller();
    auto answer = std::make_shared<sim::Answer>(world_);
    world_->After(kTrip, [this, answer, handler = std::move(handler)] {
      handler(*server_, false, [this, answer](absl::StatusOr<std::any> what) {
        world_->After(kTrip,
                      [answer, what = std::move(what)] { answer->Set(what); });
      });
    });
    return answer->Await(client, call);
  }

 private:
  static constexpr absl::Duration kTrip = absl::Milliseconds(10);

  FiberWorld* const world_;
  const std::shared_ptr<sim::Server>* const server_;
};

struct VirtualWorker {
  VirtualWorker(Fixture& fixture, int index) : base(fixture, index) {}

  Worker base;  // Its options; its own port and thread are not used.
  std::vector<UpdateOffer> offers;
  std::unique_ptr<sim::SimulatedPort> port;
  FiberWorld::Group group = 0;
};

class VirtualRun {
 public:
  // Starts the fixture's coordinator.
  explicit VirtualRun(Fixture& fixture)
      : fixture_(fixture), server_(std::make_shared<sim::Server>()) {
    server_->fs = FileSystem::Posix();
    server_->group = world.NewGroup();
    absl::Status status;
    world.Spawn(server_->group, [&] {
      CoordinatorOptions options = fixture.MakeOptions();
      options.clock = &world;
      options.threads = &world;
      auto started = Coordinator::Start(std::move(options));
      status = started.status();
      if (started.ok()) server_->coordinator = *std::move(started);
    });
    while (server_->coordinator == nullptr && world.Step()) {
    }
    INFO(status);
    REQUIRE(server_->coordinator != nullptr);
  }
  ~VirtualRun() {
    for (const auto& worker : workers_) {
      worker->base.stop = true;
      worker->port->Kill();
      world.End(worker->group);
    }
    world.Spawn(server_->group, [this] { server_->coordinator->Stop(); });
    world.End(server_->group);
    server_->coordinator.reset();
  }

  // `prepare` may set more of the trainer up.
  VirtualWorker& AddWorker(int index, absl::Duration step,
                           std::function<void(FakeTrainer&)> prepare = {}) {
    workers_.push_back(std::make_unique<VirtualWorker>(fixture_, index));
    VirtualWorker& worker = *workers_.back();
    sim::SimulatedPort::Options port;
    port.world = &world;
    port.wire = &wire_;
    port.fs = FileSystem::Posix();
    port.uniform = [] { return 0.5; };
    port.worker = index;
    port.offered = [&worker](const UpdateOffer& offer, const std::string&) {
      worker.offers.push_back(offer);
    };
    worker.port = std::make_unique<sim::SimulatedPort>(std::move(port));
    worker.base.options.port = worker.port.get();
    worker.base.options.clock = &world;
    worker.base.options.threads = &world;
    worker.base.prepare = [this, step, prepare](FakeTrainer& trainer) {
      trainer.SpendBeforeStep([this, step] { world.Sleep(step); });
      if (prepare) prepare(trainer);
    };
    worker.group = world.NewGroup();
    world.Spawn(worker.group, [&worker] {
      Agent agent(worker.base.options);
      worker.base.status = agent.Run();
      worker.base.ended = true;
    });
    return worker;
  }

  // Lets time pass until `done`, for at most `most`.
  template <typename F>
  void Until(F done, absl::Duration most = absl::Hours(1)) {
    const Instant end = world.Now() + most;
    while (!done()) {
      INFO(Status().phase_reason);
      REQUIRE(world.Now() < end);
      const Instant look = world.Now() + absl::Milliseconds(50);
      while (world.Now() < look) REQUIRE(world.Step());
    }
  }

  StatusReport Status() {
    std::optional<StatusReport> out;
    server_->coordinator->GetStatus(
        [&](absl::StatusOr<StatusReport> report) { out = report.value(); });
    while (!out.has_value()) REQUIRE(world.Step());
    return *std::move(out);
  }

  // All facts so far.
  const std::vector<Fact>& Facts() {
    bool ready = false;
    server_->coordinator->GetEvents(
        sequence_, absl::ZeroDuration(),
        [&](absl::StatusOr<EventsOutcome> events) {
          for (const EventReport& event : events.value().events) {
            sequence_ = event.sequence;
            facts_.push_back(event.fact);
          }
          ready = true;
        });
    while (!ready) REQUIRE(world.Step());
    return facts_;
  }
  template <typename F>
  std::vector<F> FactsOf() {
    std::vector<F> found;
    for (const Fact& fact : Facts()) {
      if (const F* one = std::get_if<F>(&fact)) found.push_back(*one);
    }
    return found;
  }

  FiberWorld world;

 private:
  Fixture& fixture_;
  std::shared_ptr<sim::Server> server_;
  CalmWire wire_{&world, &server_};
  std::vector<std::unique_ptr<VirtualWorker>> workers_;
  uint64_t sequence_ = 0;
  std::vector<Fact> facts_;
};

}  // namespace diloco

#endif  // TESTS_COMPONENT_AGENT_VIRTUAL_RUN_H_

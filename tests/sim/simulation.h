// One simulated run: the real coordinator and real agents, each on a machine of
// its own with a disk in memory, over the simulated network, with the faults of
// a plan. The same options give the same trace, always.
//
//   Simulation simulation(options, plan, trace);
//   const SimResult result = simulation.Run();
#ifndef TESTS_SIM_SIMULATION_H_
#define TESTS_SIM_SIMULATION_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/fiber_world.h"
#include "tests/sim/network.h"
#include "tests/sim/oracle.h"
#include "tests/sim/plan.h"
#include "tests/support/fault_file_system.h"
#include "worker/runtime/agent.h"
#include "worker/simulate/simulated_port.h"

namespace diloco::sim {

struct SimResult {
  std::string broken;   // Empty: everything held.
  absl::Duration took;  // Virtual.
  uint64_t version = 0;
  Digest digest;
  uint64_t facts = 0;
  uint64_t tokens_made = 0;
  uint64_t tokens_folded = 0;
  int restarts = 0;  // Of the coordinator.
  // Of all workers together.
  Oracle::Ledger ledger;
  // In which an agent waited for a call of its own (join, download, upload)
  // although its link and the coordinator were there, beyond what transfers
  // take when nothing goes wrong.
  absl::Duration busy;
};

// "12:04.500", who, what.
using Trace = std::function<void(Instant, const std::string& who,
                                 const std::string& what)>;

class Simulation {
 public:
  Simulation(const SimOptions& options, const Plan& plan, Trace trace);
  ~Simulation();
  SimResult Run();

 private:
  struct Machine;
  struct WorkerMachine;

  void Say(const std::string& who, const std::string& what);
  void Strike(const Fault& fault);
  void RotImage(const Fault& fault);
  void Order(const Event& event, const std::function<void()>& then);
  // What has passed since the last look.
  void Look();

  // The coordinator's machine.
  void StartCoordinator();
  void EndCoordinator(bool power_cut, uint64_t keep, absl::Duration down);
  void ReadFacts(std::shared_ptr<Server> server);
  void TakeFacts(const std::shared_ptr<Server>& server,
                 const EventsOutcome& events);
  void CheckJournal();
  CoordinatorOptions MakeCoordinatorOptions(std::shared_ptr<Server> server);

  // A worker's machine.
  void StartWorker(int worker);
  void RunAgent(int worker);
  void EndWorker(int worker, bool power_cut, uint64_t keep,
                 absl::Duration down);
  void AgentEnded(int worker, const absl::Status& status);
  bool AllDone() const;

  const SimOptions options_;
  const Plan plan_;
  const Trace trace_;
  FiberWorld world_;
  Network network_;
  Layout layout_;
  RunSettings settings_;
  std::vector<float> initial_;
  std::unique_ptr<Oracle> oracle_;
  Stream random_;

  FaultFileSystem coordinator_fs_;
  std::shared_ptr<Server> server_;
  std::unique_ptr<MetricsRegistry> metrics_;
  uint64_t coordinator_life_ = 0;
  int starts_ = 0;
  bool rotten_ = false;
  Instant looked_;
  absl::Duration busy_;
  std::vector<std::unique_ptr<WorkerMachine>> workers_;
};

}  // namespace diloco::sim

#endif  // TESTS_SIM_SIMULATION_H_

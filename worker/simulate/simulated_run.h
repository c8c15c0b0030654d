// A whole run in one process and one thread: the real coordinator with its
// files, real agents with their trainers, taking turns in virtual time. A step
// takes the time it is said to take, files take the time that a worker's line
// needs, all else takes none. The same options give the same run, always.
//
//   SimulationOptions options;
//   ASSIGN_OR_RETURN(options.run, OptionsOfRun(fs, config));
//   options.workers = {{.name = "w1", ...}, {.name = "w2", ...}};
//   ASSIGN_OR_RETURN(const SimulationReport report,
//                    Simulate(std::move(options)));
#ifndef WORKER_SIMULATE_SIMULATED_RUN_H_
#define WORKER_SIMULATE_SIMULATED_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/runtime/coordinator.h"
#include "worker/runtime/agent.h"
#include "worker/simulate/line_wire.h"
#include "worker/simulate/round_log.h"

namespace diloco::sim {

struct SimulatedWorker {
  std::string name;
  double speed = 1;  // Its steps take 1 / speed of `step_time`.
  Line line;
  // As of AgentOptions.
  std::function<absl::StatusOr<std::unique_ptr<BatchSource>>()> open_data;
};

// The worker's process is killed in the middle of its lease of that round.
struct PlannedKill {
  std::string worker;
  uint64_t round = 0;
};

struct SimulationOptions {
  // Those of the run file. Clock, threads, random numbers and metrics are
  // replaced.
  CoordinatorOptions run;
  std::vector<SimulatedWorker> workers;
  Line coordinator;  // All workers' files pass it; without latency.
  absl::Duration step_time = absl::Seconds(1);
  std::vector<PlannedKill> kills;
  absl::Duration back_after = absl::Seconds(30);  // After a kill.
  absl::Duration checkpoint_every = absl::Minutes(5);
  std::string scratch;  // A directory for each worker lies in it.
  FileSystem* fs = FileSystem::Posix();
  // As of AgentOptions. Called and used on the thread that calls Simulate.
  std::function<absl::StatusOr<std::unique_ptr<Trainer>>(const RunSettings&,
                                                         const Layout&)>
      make_trainer;
  // Test hook, as of AgentOptions.
  std::function<void(uint64_t version, Trainer&)> after_apply;
  std::function<void(const RoundRow&)> on_round = [](const RoundRow&) {};
  // What else happens, in words.
  std::function<void(const std::string&)> on_note = [](const std::string&) {};
  // Polled; once true everything ends as if killed: CANCELLED.
  std::function<bool()> stop_requested = [] { return false; };
};

struct SimulationReport {
  absl::Duration took;  // Virtual, to the end of the run.
  std::vector<RoundRow> rounds;
  StatusReport status;  // After everybody has left.
};

// INVALID_ARGUMENT when no such run could ever end. What ends a worker or the
// coordinator ends the simulation.
absl::StatusOr<SimulationReport> Simulate(SimulationOptions options);

}  // namespace diloco::sim

#endif  // WORKER_SIMULATE_SIMULATED_RUN_H_

// What goes wrong in a simulated run, and when: drawn from the seed before the
// run starts, so that a run with fewer faults is otherwise the same run.
#ifndef TESTS_SIM_PLAN_H_
#define TESTS_SIM_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "coordinator/core/machine.h"
#include "worker/simulate/wire.h"

namespace diloco::sim {

// A defect to plant, to see that the simulation finds it. `kNone`: the product.
enum class Plant {
  kNone,
  kCountTwice,      // A worker sends what was folded once more.
  kSkipFsync,       // The coordinator's fsyncs do nothing.
  kWrongWeight,     // Updates are weighted by another rule than the run's.
  kForgetMomentum,  // A restarted coordinator goes on without momentum.
};
// From "count-twice", "skip-fsync", "wrong-weight", "forget-momentum".
std::optional<Plant> ParsePlant(const std::string& name);

struct SimOptions {
  uint64_t seed = 1;
  int workers = 3;
  uint32_t fragments = 1;
  uint64_t rounds = 20;
  double faults_per_hour = 60;
  Plant plant = Plant::kNone;
  // Of the plan's faults, by number; absent: all.
  std::optional<std::vector<size_t>> only;
};

const char* MessageName(Message message);

enum class FaultKind {
  kCoordinatorCrash,  // Down for `lasts`; at the `n`-th change of a file.
  kRottenImage,       // Likewise; a bit of its newest image is flipped by then.
  kWorkerCrash,       // Likewise; back with the same scratch directory.
  kWorkerLosesScratch,
  kWorkerLeaves,  // As told by SIGTERM; back after `lasts`.
  kCut,           // Nothing passes between worker and coordinator.
  kSlow,          // Steps take `factor` times as long.
  kDiskFull,
  kFailedSync,   // The `n`-th one from now.
  kFailedWrite,  // The `n`-th one from now keeps `keep` bytes.
  kLostRequest,  // The next call of that kind on that link, and so on.
  kLostReply,
  kLateRequest,  // Held for `lasts`: later calls overtake it.
  kRepeated,     // Delivered once more after `lasts`.
  kCorrupted,    // The next chunk, on the way.
  kPause,        // By the operator, who resumes after `lasts`.
  kDrain,        // Of a worker, by the operator; it is back after `lasts`.
};

struct Fault {
  FaultKind kind = FaultKind::kCut;
  Instant at;
  int worker = -1;  // -1: the coordinator.
  absl::Duration lasts;
  int n = 0;
  uint64_t keep = 0;
  bool power_cut = false;  // What was not synced is lost, but for `keep` bytes.
  double factor = 1;
  Message message = Message::kBeat;
};
// "12:04.500 worker-1 crashes, power cut, ..."
std::string Describe(const Fault& fault);

// Of the shard on which theta is evaluated.
inline constexpr uint64_t kEvalWindows = 6;

struct Plan {
  Policy policy;
  uint32_t overlap = 0;
  MergeMode merge = MergeMode::kExact;
  float mix = 0;
  absl::Duration step;         // Of a worker at factor 1.
  std::vector<double> factor;  // By worker: how much slower its steps are.
  std::vector<Instant> start;  // By worker: when its process first starts.
  absl::Duration checkpoint_every;
  absl::Duration nominal;     // What the run takes when nothing goes wrong.
  std::vector<Fault> faults;  // In the order of time.
};
// `options.only` is not applied here.
Plan DrawPlan(const SimOptions& options);

std::string WorkerName(int worker);
// Virtual time as minutes, seconds and milliseconds.
std::string Stamp(Instant at);

}  // namespace diloco::sim

#endif  // TESTS_SIM_PLAN_H_

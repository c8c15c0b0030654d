#include "worker/simulate/simulated_run.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/fiber_world.h"
#include "common/base/status_macros.h"
#include "worker/simulate/killable_files.h"
#include "worker/simulate/simulated_port.h"
#include "worker/simulate/stream.h"

namespace diloco::sim {
namespace {

// LibTorch's backward pass recurses.
constexpr size_t kStackBytes = 8 << 20;
constexpr absl::Duration kEventsWait = absl::Hours(1000);

// The data of a worker, each reading of which is a step and takes its time.
class PacedData final : public BatchSource {
 public:
  PacedData(std::unique_ptr<BatchSource> data, FiberWorld* world,
            absl::Duration step)
      : data_(std::move(data)),
        world_(world),
        group_(world->current_group()),
        step_(step) {}

  uint64_t tokens() const override { return data_->tokens(); }
  uint32_t max_token() const override { return data_->max_token(); }
  std::string Describe() const override { return data_->Describe(); }
  absl::Status Prepare(const RunSettings& settings) override {
    return data_->Prepare(settings);
  }
  absl::StatusOr<Batch> Read(uint64_t cursor, int64_t windows) override {
    world_->Sleep(step_);
    if (world_->ended(group_)) {
      return absl::CancelledError("the process was killed");
    }
    return data_->Read(cursor, windows);
  }

 private:
  const std::unique_ptr<BatchSource> data_;
  FiberWorld* const world_;
  const FiberWorld::Group group_;
  const absl::Duration step_;
};

class SimulatedRun {
 public:
  explicit SimulatedRun(SimulationOptions options)
      : options_(std::move(options)),
        world_(kStackBytes),
        wire_(&world_, Lines(options_.workers), options_.coordinator),
        random_(options_.run.settings.seed, "coordinator") {
    for (const SimulatedWorker& worker : options_.workers) {
      machines_.push_back(std::make_unique<Machine>(
          worker, options_.run.settings.seed, machines_.size()));
    }
  }
  absl::StatusOr<SimulationReport> Run();

 private:
  struct Machine {
    Machine(const SimulatedWorker& worker, uint64_t seed, size_t number)
        : worker(worker),
          number(static_cast<int>(number)),
          random(seed, worker.name) {}
    const SimulatedWorker worker;
    const int number;
    Stream random;
    bool ended = false;  // By itself.
    // Of the process that runs, if one does.
    bool running = false;
    bool stop = false;
    FiberWorld::Group group = 0;
    std::unique_ptr<KillableFiles> files;
    std::unique_ptr<SimulatedPort> port;
    std::unique_ptr<MetricsRegistry> metrics;
  };

  static std::vector<Line> Lines(const std::vector<SimulatedWorker>& workers) {
    std::vector<Line> lines;
    for (const SimulatedWorker& worker : workers) lines.push_back(worker.line);
    return lines;
  }

  absl::Status Check() const;
  bool Over() const {
    return !failed_.ok() ||
           std::all_of(machines_.begin(), machines_.end(),
                       [](const auto& machine) { return machine->ended; });
  }
  // The first one counts.
  void Fail(const absl::Status& status) {
    if (failed_.ok()) failed_ = status;
  }
  // Steps until `done`; false when it never will be.
  bool StepUntil(const std::function<bool()>& done);
  void Tell(bool all);

  void StartCoordinator();
  void ReadFacts();
  void TakeFact(const EventReport& event);
  void StopCoordinator();

  void StartWorker(Machine& machine);
  void RunAgent(Machine& machine);
  void AgentEnded(Machine& machine, const absl::Status& status);
  void End(Machine& machine);
  void PlanKills(const RoundOpened& round);
  void Kill(Machine& machine, uint64_t round);

  absl::Duration StepTime(const Machine& machine) const {
    return options_.step_time / machine.worker.speed;
  }

  const SimulationOptions options_;
  FiberWorld world_;
  LineWire wire_;
  Stream random_;
  MetricsRegistry metrics_;
  std::shared_ptr<Server> server_;
  std::vector<std::unique_ptr<Machine>> machines_;
  RoundLog log_;
  uint64_t last_sequence_ = 0;
  std::set<size_t> kills_planned_;  // Of options_.kills.
  std::optional<Instant> finished_;
  absl::Status failed_;
  bool closing_ = false;
};

absl::Status SimulatedRun::Check() const {
  const size_t workers = options_.workers.size();
  const Policy& policy = options_.run.policy;
  for (const auto& [key, needed] :
       {std::pair("join.wait_for", policy.wait_for),
        std::pair("sync.min_updates", policy.min_updates)}) {
    if (needed <= workers) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(key, " is ", needed, ", with ", workers,
                     " workers the run would never go on: more workers, or a "
                     "lower value in the run file"));
  }
  std::set<std::string> names;
  for (const SimulatedWorker& worker : options_.workers) {
    if (!names.insert(worker.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("two workers are called ", worker.name));
    }
  }
  for (const PlannedKill& kill : options_.kills) {
    if (names.count(kill.worker) == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "there is no worker ", kill.worker, " that could be killed"));
    }
  }
  return absl::OkStatus();
}

bool SimulatedRun::StepUntil(const std::function<bool()>& done) {
  while (!done()) {
    if (!world_.Step()) return false;
  }
  return true;
}

void SimulatedRun::Tell(bool all) {
  for (const RoundRow& row : log_.Take(all)) options_.on_round(row);
}

void SimulatedRun::StartCoordinator() {
  server_ = std::make_shared<Server>();
  server_->fs = options_.run.fs;
  server_->group = world_.NewGroup();
  world_.Spawn(server_->group, [this] {
    CoordinatorOptions options = options_.run;
    options.clock = &world_;
    options.threads = &world_;
    options.random_bytes = [this](size_t n) { return random_.Bytes(n); };
    options.metrics = &metrics_;
    options.on_fatal = [this](const absl::Status& status) { Fail(status); };
    absl::StatusOr<std::unique_ptr<Coordinator>> started =
        Coordinator::Start(std::move(options));
    if (!started.ok()) return Fail(started.status());
    server_->coordinator = *std::move(started);
    wire_.set_server(server_);
    ReadFacts();
    for (const auto& machine : machines_) StartWorker(*machine);
  });
}

void SimulatedRun::ReadFacts() {
  server_->coordinator->GetEvents(
      last_sequence_, kEventsWait, [this](absl::StatusOr<EventsOutcome> some) {
        if (!some.ok()) return;  // It stops.
        for (const EventReport& event : some->events) {
          last_sequence_ = event.sequence;
          TakeFact(event);
        }
        ReadFacts();
      });
}

void SimulatedRun::TakeFact(const EventReport& event) {
  log_.Feed(event);
  Tell(/*all=*/false);
  if (const auto* opened = std::get_if<RoundOpened>(&event.fact)) {
    PlanKills(*opened);
  } else if (const auto* pause = std::get_if<PauseChanged>(&event.fact)) {
    Fail(absl::AbortedError(
        absl::StrCat("the run was paused, and nobody is there who would let "
                     "it go on: ",
                     pause->reason)));
  } else if (std::holds_alternative<RunFinished>(event.fact)) {
    finished_ = world_.Now();
  }
}

void SimulatedRun::PlanKills(const RoundOpened& round) {
  for (size_t i = 0; i < options_.kills.size(); ++i) {
    const PlannedKill& kill = options_.kills[i];
    // Rounds of several fragments have the same number.
    if (kill.round != round.round || !kills_planned_.insert(i).second) continue;
    for (const auto& machine : machines_) {
      const auto lease = std::find_if(
          round.leases.begin(), round.leases.end(),
          [&](const Lease& lease) { return lease.worker == kill.worker; });
      if (machine->worker.name != kill.worker) continue;
      if (lease == round.leases.end()) {
        options_.on_note(absl::StrCat(kill.worker, " is not in round ",
                                      kill.round, ", and is not killed"));
        continue;
      }
      world_.After(lease->steps / 2 * StepTime(*machine),
                   [this, machine = machine.get(), n = kill.round] {
                     Kill(*machine, n);
                   });
    }
  }
}

void SimulatedRun::StopCoordinator() {
  if (server_->coordinator != nullptr) {
    bool stopped = false;
    world_.Spawn(server_->group, [this, &stopped] {
      server_->coordinator->Stop();
      stopped = true;
    });
    (void)StepUntil([&] { return stopped; });
  }
  server_->alive = false;
  wire_.set_server(nullptr);
  world_.End(server_->group);
  server_->coordinator.reset();
}

void SimulatedRun::StartWorker(Machine& machine) {
  if (closing_) return;
  machine.running = true;
  machine.stop = false;
  machine.group = world_.NewGroup();
  world_.Spawn(machine.group, [this, &machine] { RunAgent(machine); });
}

void SimulatedRun::RunAgent(Machine& machine) {
  machine.files = std::make_unique<KillableFiles>(options_.fs);
  machine.metrics = std::make_unique<MetricsRegistry>();
  SimulatedPort::Options port;
  port.world = &world_;
  port.wire = &wire_;
  port.fs = machine.files.get();
  port.uniform = [&machine] { return machine.random.Uniform(); };
  port.worker = machine.number;
  machine.port = std::make_unique<SimulatedPort>(std::move(port));
  AgentOptions options;
  options.worker = machine.worker.name;
  options.scratch = JoinPath(options_.scratch, machine.worker.name);
  options.checkpoint_every = options_.checkpoint_every;
  options.fs = machine.files.get();
  options.clock = &world_;
  options.threads = &world_;
  options.random_bytes = [&machine](size_t n) {
    return machine.random.Bytes(n);
  };
  options.port = machine.port.get();
  options.metrics = machine.metrics.get();
  options.make_trainer = options_.make_trainer;
  options.open_data =
      [this, &machine]() -> absl::StatusOr<std::unique_ptr<BatchSource>> {
    ASSIGN_OR_RETURN(std::unique_ptr<BatchSource> data,
                     machine.worker.open_data());
    return std::make_unique<PacedData>(std::move(data), &world_,
                                       StepTime(machine));
  };
  options.stop_requested = [&machine] { return machine.stop; };
  options.after_apply = options_.after_apply;
  absl::Status status;
  {
    Agent agent(std::move(options));
    status = agent.Run();
  }
  if (!world_.ended(machine.group)) AgentEnded(machine, status);
}

// By itself.
void SimulatedRun::AgentEnded(Machine& machine, const absl::Status& status) {
  machine.ended = true;
  if (!status.ok()) {
    Fail(absl::Status(status.code(), absl::StrCat(machine.worker.name, ": ",
                                                  status.message())));
  } else if (!finished_.has_value()) {
    Fail(absl::AbortedError(
        absl::StrCat(machine.worker.name, " left before the run was over")));
  }
}

// As SIGKILL does.
void SimulatedRun::End(Machine& machine) {
  if (!machine.running) return;
  machine.running = false;
  machine.stop = true;
  if (machine.port != nullptr) machine.port->Kill();
  if (machine.files != nullptr) machine.files->Kill();
  world_.End(machine.group);
}

void SimulatedRun::Kill(Machine& machine, uint64_t round) {
  if (!machine.running || machine.ended) return;
  End(machine);
  options_.on_note(absl::StrCat(machine.worker.name, " is killed in round ",
                                round, ", back in ",
                                absl::FormatDuration(options_.back_after)));
  world_.After(options_.back_after, [this, &machine] { StartWorker(machine); });
}

absl::StatusOr<SimulationReport> SimulatedRun::Run() {
  RETURN_IF_ERROR(Check());
  StartCoordinator();
  const bool over = StepUntil([this] {
    if (options_.stop_requested()) Fail(absl::CancelledError("asked to stop"));
    return Over();
  });
  if (!over) Fail(absl::InternalError("nothing will ever happen any more"));
  closing_ = true;
  Tell(/*all=*/true);
  SimulationReport report;
  if (failed_.ok()) {
    bool told = false;
    server_->coordinator->GetStatus([&](absl::StatusOr<StatusReport> status) {
      if (status.ok()) {
        report.status = *std::move(status);
      } else {
        Fail(status.status());
      }
      told = true;
    });
    (void)StepUntil([&] { return told; });
  }
  for (const auto& machine : machines_) End(*machine);
  StopCoordinator();
  RETURN_IF_ERROR(failed_);
  report.took = finished_.value_or(world_.Now());
  report.rounds = log_.rows();
  return report;
}

}  // namespace

absl::StatusOr<SimulationReport> Simulate(SimulationOptions options) {
  return SimulatedRun(std::move(options)).Run();
}

}  // namespace diloco::sim

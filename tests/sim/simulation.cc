#include "tests/sim/simulation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/logging.h"
#include "coordinator/store/fact_codec.h"
#include "coordinator/store/journal.h"
#include "coordinator/store/state_dir.h"

namespace diloco::sim {
namespace {

constexpr char kRun[] = "sim";
constexpr char kStateDir[] = "state";
constexpr char kScratch[] = "scratch";
constexpr char kEvalShard[] = "valid.bin";
constexpr char kCoordinator[] = "coordinator";
// What a supervisor waits before it starts a process again that ended by
// itself.
constexpr absl::Duration kSupervisorPause = absl::Seconds(5);
// A crash that waits for a change of the files comes after so long anyhow.
constexpr absl::Duration kCrashPatience = absl::Seconds(20);
constexpr absl::Duration kEventsWait = absl::Hours(1000);
constexpr uint64_t kRoomOfFullDisk = 300;

// Of an upload: small, so that an update is several.
constexpr uint64_t kChunkBytes = 700;

// What the calls for one update and the version after it take on average:
// begin, chunks, finish, resolve, read.
absl::Duration MeanTransfer(uint64_t update_bytes) {
  const auto chunks =
      static_cast<int64_t>((update_bytes + kChunkBytes - 1) / kChunkBytes);
  return (4 + chunks) * Network::kMeanTrip;
}

// Batches of a worker: the same at the same place.
class SimData final : public BatchSource {
 public:
  explicit SimData(int worker) : worker_(static_cast<uint64_t>(worker)) {}
  uint64_t tokens() const override { return 100'000; }
  uint32_t max_token() const override { return 49; }
  std::string Describe() const override { return "simulated data"; }
  absl::Status Prepare(const RunSettings&) override { return absl::OkStatus(); }
  absl::StatusOr<Batch> Read(uint64_t cursor, int64_t windows) override {
    Batch batch;
    batch.windows = windows;
    batch.ids_per_window = 5;
    for (int64_t i = 0; i < windows * 5; ++i) {
      batch.ids.push_back(static_cast<int32_t>(
          (worker_ * 11 + cursor * 7 + static_cast<uint64_t>(i)) % 50));
    }
    return batch;
  }

 private:
  const uint64_t worker_;
};

ModelConfig TinyModel() {
  ModelConfig model;
  model.layers = 1;
  model.hidden = 8;
  model.heads = 2;
  model.kv_heads = 1;
  model.head_dim = 4;
  model.ffn = 8;
  model.vocab = 50;
  model.max_positions = 4;
  return model;
}

// A worker that was told so must not go on: here nobody has copied a scratch
// directory, given a worker other settings or made a second coordinator.
bool IsTurnedAway(const absl::Status& status) {
  return absl::IsPermissionDenied(status) ||
         absl::IsFailedPrecondition(status) ||
         absl::IsInvalidArgument(status) || absl::IsUnauthenticated(status);
}

}  // namespace

struct Simulation::WorkerMachine {
  explicit WorkerMachine(uint64_t seed, const std::string& name)
      : random(seed, absl::StrCat(name, " random")) {}

  std::unique_ptr<FaultFileSystem> fs = std::make_unique<FaultFileSystem>();
  Stream random;
  // Of the process that runs, if one does.
  FiberWorld::Group group = 0;
  uint64_t life = 0;
  bool running = false;
  bool stop = false;
  std::unique_ptr<SimulatedPort> port;
  std::unique_ptr<MetricsRegistry> metrics;
  SimTrainer* trainer = nullptr;
  // What was taken, by round and digest: a spooled update outlives its process.
  std::map<std::pair<uint64_t, std::string>, StepIds> taken;
  double slow = 1;
  bool drained = false;
  bool finished = false;
  absl::Duration back_after = kSupervisorPause;  // Once it has left.
};

Simulation::Simulation(const SimOptions& options, const Plan& plan, Trace trace)
    : options_(options),
      plan_(plan),
      trace_(std::move(trace)),
      network_(&world_, options.seed, options.workers),
      random_(options.seed, "coordinator random") {
  settings_.run = kRun;
  settings_.seed = options.seed;
  settings_.model = TinyModel();
  settings_.train.seq_len = 4;
  settings_.train.batch_tokens = plan.policy.batch_tokens;
  settings_.train.tokens = plan.policy.train_tokens;
  settings_.train.schedule = ScheduleShape::kConstant;
  settings_.train.lr = 0.05;
  settings_.join_ramp_steps = 3;
  settings_.join_probe = true;
  settings_.codec_up = plan.policy.codec_up;
  settings_.error_feedback = !IsPlain(plan.policy.codec_up);
  settings_.stochastic_rounding = plan.policy.codec_up == Codec::kE3m0;
  settings_.late = plan.policy.late;
  settings_.fragments = {options.fragments > 1 ? FragmentPattern::kBalanced
                                               : FragmentPattern::kWhole,
                         options.fragments,
                         {}};
  settings_.overlap = plan.overlap;
  settings_.merge = plan.merge;
  settings_.mix = plan.mix;
  layout_ = *ModelLayout(settings_.model, settings_.fragments);
  settings_.layout_digest = layout_.ComputeDigest();
  initial_.resize(static_cast<size_t>(layout_.elements));
  Stream values(options.seed, "theta");
  for (float& value : initial_) {
    value = static_cast<float>(values.Uniform() - 0.5);
  }
  oracle_ = std::make_unique<Oracle>(plan.policy, layout_, initial_);
  for (int i = 0; i < options.workers; ++i) {
    workers_.push_back(
        std::make_unique<WorkerMachine>(options.seed, WorkerName(i)));
  }
}

Simulation::~Simulation() = default;

void Simulation::Say(const std::string& who, const std::string& what) {
  if (trace_) trace_(world_.Now(), who, what);
}

CoordinatorOptions Simulation::MakeCoordinatorOptions(
    std::shared_ptr<Server> server) {
  CoordinatorOptions options;
  options.run = kRun;
  options.policy = plan_.policy;
  if (options_.plant == Plant::kWrongWeight) {
    options.policy.weighting = plan_.policy.weighting == Weighting::kTokens
                                   ? Weighting::kUniform
                                   : Weighting::kTokens;
  }
  if (options_.plant == Plant::kForgetMomentum && starts_ > 1) {
    options.policy.outer_momentum = 0;
  }
  options.settings = settings_;
  options.layout = layout_;
  options.state_dir = kStateDir;
  options.image_every = 4;
  options.keep_images = 2;
  options.keep_every = 0;
  options.journal_segment_bytes = 8 << 10;
  options.initial_theta = [this](absl::Span<float> theta) {
    std::copy(initial_.begin(), initial_.end(), theta.begin());
    return absl::OkStatus();
  };
  if (plan_.policy.eval_every > 0) options.eval_shard = kEvalShard;
  options.fs = &coordinator_fs_;
  options.clock = &world_;
  options.threads = &world_;
  options.random_bytes = [this](size_t n) { return random_.Bytes(n); };
  metrics_ = std::make_unique<MetricsRegistry>();
  options.metrics = metrics_.get();
  options.on_fatal = [this, life = coordinator_life_,
                      server = std::weak_ptr<Server>(server)](
                         const absl::Status& status) {
    const std::shared_ptr<Server> dying = server.lock();
    if (dying == nullptr || !dying->alive) return;
    dying->alive = false;
    coordinator_fs_.StopAfter(1);
    Say(kCoordinator, absl::StrCat("ends: ", std::string(status.message())));
    if (absl::IsInvalidArgument(status) || absl::IsInternal(status)) {
      oracle_->Break(absl::StrCat("the coordinator cannot go on: ",
                                  std::string(status.message())));
    }
    world_.After(absl::ZeroDuration(), [this, life] {
      if (life == coordinator_life_) EndCoordinator(false, 0, kSupervisorPause);
    });
  };
  return options;
}

void Simulation::StartCoordinator() {
  ++starts_;
  const uint64_t life = ++coordinator_life_;
  auto server = std::make_shared<Server>();
  server->fs = &coordinator_fs_;
  server->group = world_.NewGroup();
  server_ = server;
  world_.Spawn(server->group, [this, server, life] {
    absl::StatusOr<std::unique_ptr<Coordinator>> started =
        Coordinator::Start(MakeCoordinatorOptions(server));
    if (!server->alive) return;  // It ended meanwhile.
    if (!started.ok()) {
      Say(kCoordinator, absl::StrCat("does not start: ",
                                     std::string(started.status().message())));
      if (absl::IsFailedPrecondition(started.status()) ||
          absl::IsInvalidArgument(started.status()) ||
          (absl::IsDataLoss(started.status()) &&
           !absl::StrContains(started.status().message(), "planted fault"))) {
        oracle_->Break(absl::StrCat("the coordinator does not start: ",
                                    std::string(started.status().message())));
      }
      world_.After(absl::ZeroDuration(), [this, life] {
        if (life == coordinator_life_) {
          EndCoordinator(false, 0, kSupervisorPause);
        }
      });
      return;
    }
    server->coordinator = *std::move(started);
    Say(kCoordinator,
        absl::StrCat("serves, epoch ", server->coordinator->fencing().epoch));
    CheckJournal();
    oracle_->Restarted(world_.Now());
    network_.set_server(server);
    ReadFacts(server);
  });
}

void Simulation::EndCoordinator(bool power_cut, uint64_t keep,
                                absl::Duration down) {
  const std::shared_ptr<Server> server = std::exchange(server_, nullptr);
  if (server == nullptr) return;
  ++coordinator_life_;
  network_.set_server(nullptr);
  network_.ServerEnded(*server);
  coordinator_fs_.StopAfter(1);
  world_.Spawn(server->group, [server] {
    if (server->coordinator != nullptr) server->coordinator->Stop();
  });
  world_.End(server->group);
  server->coordinator.reset();
  if (power_cut) {
    coordinator_fs_.CrashKeeping(keep);
  } else {
    coordinator_fs_.KillProcess();
  }
  Say(kCoordinator, absl::StrCat("is down for ", absl::FormatDuration(down)));
  const uint64_t life = coordinator_life_;
  world_.After(down, [this, life] {
    if (life == coordinator_life_) StartCoordinator();
  });
}

// Everything that the journal holds at a start, against what was seen.
void Simulation::CheckJournal() {
  uint64_t last = 0;
  const absl::StatusOr<Journal::Scanned> scanned = Journal::Scan(
      &coordinator_fs_, kStateDir, [&](const Journal::Record& record) {
        const absl::StatusOr<Fact> fact =
            DecodeFact(record.type, record.payload);
        if (!fact.ok()) return fact.status();
        last = record.sequence;
        oracle_->Durable(record.sequence, *fact, world_.Now());
        return absl::OkStatus();
      });
  if (!scanned.ok()) {
    oracle_->Break(absl::StrCat("the journal cannot be read: ",
                                std::string(scanned.status().message())));
  }
  oracle_->Recovered(last);
}

void Simulation::ReadFacts(std::shared_ptr<Server> server) {
  server->coordinator->GetEvents(
      oracle_->facts(), kEventsWait,
      [this, server](absl::StatusOr<EventsOutcome> events) {
        if (!events.ok()) return;
        TakeFacts(server, *events);
      });
}

void Simulation::TakeFacts(const std::shared_ptr<Server>& server,
                           const EventsOutcome& events) {
  for (const EventReport& event : events.events) {
    oracle_->Durable(event.sequence, event.fact, world_.Now());
    if (!trace_) continue;
    const std::string type = FactTypeName(EncodeFact(event.fact).type);
    std::string more;
    if (const auto* closed = std::get_if<RoundClosed>(&event.fact)) {
      more = absl::StrCat(" round ", closed->round, ": ", closed->reason);
    } else if (const auto* published =
                   std::get_if<VersionPublished>(&event.fact)) {
      more = absl::StrCat(" ", published->version, " digest ",
                          published->digest.Short());
    } else if (const auto* joined = std::get_if<WorkerJoined>(&event.fact)) {
      more = absl::StrCat(" ", joined->worker, joined->fresh ? " fresh" : "");
    } else if (const auto* update = std::get_if<UpdateCommitted>(&event.fact)) {
      more = absl::StrCat(" ", update->worker, " round ", update->round, " ",
                          update->value.tokens, " tokens");
    } else if (const auto* gone = std::get_if<WorkerDeparted>(&event.fact)) {
      more = absl::StrCat(" ", gone->worker, ": ", gone->reason);
    } else if (const auto* opened = std::get_if<RoundOpened>(&event.fact)) {
      more = absl::StrCat(" round ", opened->round, ": ", opened->reason);
    } else if (const auto* extended = std::get_if<RoundExtended>(&event.fact)) {
      more = absl::StrCat(" round ", extended->round, ": ", extended->reason);
    } else if (const auto* added = std::get_if<LeaseAdded>(&event.fact)) {
      more = absl::StrCat(" round ", added->round, ": ", added->lease.worker,
                          " ", added->reason);
    } else if (const auto* finished = std::get_if<RunFinished>(&event.fact)) {
      more = absl::StrCat(": ", finished->reason);
    }
    Say(kCoordinator, absl::StrCat(type, more));
  }
  if (server->alive) ReadFacts(server);
}

void Simulation::StartWorker(int worker) {
  WorkerMachine& machine = *workers_[static_cast<size_t>(worker)];
  if (machine.running || machine.finished) return;
  ++machine.life;
  machine.running = true;
  machine.stop = false;
  machine.group = world_.NewGroup();
  Say(WorkerName(worker), "starts");
  world_.Spawn(machine.group, [this, worker] { RunAgent(worker); });
}

void Simulation::RunAgent(int worker) {
  WorkerMachine& machine = *workers_[static_cast<size_t>(worker)];
  SimulatedPort::Options port;
  port.world = &world_;
  port.wire = &network_;
  port.fs = machine.fs.get();
  port.uniform = [&machine] { return machine.random.Uniform(); };
  port.worker = worker;
  port.chunk_bytes = kChunkBytes;
  port.offered = [this, worker, &machine](const UpdateOffer& offer,
                                          const std::string& content) {
    StepIds& steps = machine.taken[{offer.round, offer.digest.ToBytes()}];
    if (machine.trainer != nullptr && steps.empty()) {
      // A process that has found the update on its disk has taken nothing.
      const StepIds& taken = machine.trainer->taken(offer.fragment);
      steps = taken.empty() ? machine.trainer->window(offer.fragment) : taken;
    }
    oracle_->Offered(worker, offer, content, steps);
  };
  port.settled = [this, worker](const UpdateOffer& offer,
                                const UploadOutcome& outcome) {
    oracle_->Settled(worker, offer, outcome);
    if (outcome.kind != UploadOutcome::Kind::kAccepted) {
      Say(WorkerName(worker),
          absl::StrCat("round ", offer.round,
                       " did not take its update: ", outcome.reason));
    }
  };
  port.reported = [this, worker](const ProgressReport& report) {
    if (report.state == "repairing") return;
    if (report.digest.has_value()) {
      oracle_->Holds(worker, 0, report.version, *report.digest);
    }
    for (const ProgressReport::FragmentProgress& other : report.others) {
      if (!other.digest.has_value()) continue;
      oracle_->Holds(worker, other.fragment, other.version, *other.digest);
    }
  };
  machine.port = std::make_unique<SimulatedPort>(std::move(port));
  machine.metrics = std::make_unique<MetricsRegistry>();
  AgentOptions options;
  options.worker = WorkerName(worker);
  options.scratch = kScratch;
  options.checkpoint_every = plan_.checkpoint_every;
  options.fs = machine.fs.get();
  options.clock = &world_;
  options.threads = &world_;
  options.random_bytes = [&machine](size_t n) {
    return machine.random.Bytes(n);
  };
  options.port = machine.port.get();
  options.metrics = machine.metrics.get();
  options.make_trainer =
      [this, worker, &machine](
          const RunSettings&,
          const Layout& layout) -> absl::StatusOr<std::unique_ptr<Trainer>> {
    SimTrainer::Hooks trainer;
    trainer.spend = [this, worker, &machine] {
      world_.Sleep(plan_.step * plan_.factor[static_cast<size_t>(worker)] *
                   machine.slow);
    };
    trainer.note = [this, worker, &machine](uint64_t tokens) {
      return oracle_->MakeStep(worker, tokens,
                               plan_.step *
                                   plan_.factor[static_cast<size_t>(worker)] *
                                   machine.slow);
    };
    trainer.found = [this](const StepIds& steps) { oracle_->Found(steps); };
    trainer.keep_delivered = options_.plant == Plant::kCountTwice;
    auto made = std::make_unique<SimTrainer>(
        layout, 0.5f + 0.25f * static_cast<float>(worker), std::move(trainer));
    machine.trainer = made.get();
    return made;
  };
  options.open_data =
      [worker]() -> absl::StatusOr<std::unique_ptr<BatchSource>> {
    return std::make_unique<SimData>(worker);
  };
  options.stop_requested = [&machine] { return machine.stop; };
  options.after_apply = [this, worker](uint64_t version, Trainer& trainer) {
    // Of several fragments the beats tell.
    if (layout_.fragments.size() > 1) return;
    oracle_->Holds(worker, 0, version, trainer.AnchorDigest(0));
  };
  absl::Status status;
  {
    Agent agent(std::move(options));
    status = agent.Run();
  }
  machine.trainer = nullptr;
  if (world_.ended(machine.group)) return;  // It was killed.
  AgentEnded(worker, status);
}

// By itself; what was planned for it comes as if it had not.
void Simulation::AgentEnded(int worker, const absl::Status& status) {
  WorkerMachine& machine = *workers_[static_cast<size_t>(worker)];
  const uint64_t life = machine.life;
  Say(WorkerName(worker), absl::StrCat("ends: ", status.ToString()));
  if (IsTurnedAway(status)) {
    oracle_->Break(absl::StrCat(WorkerName(worker),
                                " was turned away: ", status.ToString()));
  }
  const bool over = oracle_->state().finished;
  absl::Duration pause = kSupervisorPause;
  if (machine.stop || machine.drained) pause = machine.back_after;
  const bool drained = std::exchange(machine.drained, false);
  world_.After(absl::ZeroDuration(),
               [this, worker, life, over, status, pause, drained] {
                 WorkerMachine& ended = *workers_[static_cast<size_t>(worker)];
                 if (ended.life != life || !ended.running) return;
                 world_.End(ended.group);
                 ended.port.reset();
                 ended.fs->KillProcess();
                 ended.running = false;
                 if (over && status.ok() && !ended.stop && !drained) {
                   ended.finished = true;
                   return;
                 }
                 world_.After(pause, [this, worker, life] {
                   if (workers_[static_cast<size_t>(worker)]->life == life) {
                     StartWorker(worker);
                   }
                 });
               });
}

void Simulation::EndWorker(int worker, bool power_cut, uint64_t keep,
                           absl::Duration down) {
  WorkerMachine& machine = *workers_[static_cast<size_t>(worker)];
  if (!machine.running) return;
  const uint64_t life = ++machine.life;
  machine.running = false;
  machine.stop = true;
  if (machine.port != nullptr) machine.port->Kill();
  machine.fs->StopAfter(1);
  // Until a later life finds them in a checkpoint.
  if (machine.trainer != nullptr) oracle_->Lost(machine.trainer->unsent());
  world_.End(machine.group);
  machine.port.reset();
  if (power_cut) {
    machine.fs->CrashKeeping(keep);
  } else {
    machine.fs->KillProcess();
  }
  world_.After(down, [this, worker, life] {
    if (workers_[static_cast<size_t>(worker)]->life == life) {
      StartWorker(worker);
    }
  });
}

bool Simulation::AllDone() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const auto& machine) { return machine->finished; });
}

void Simulation::Strike(const Fault& fault) {
  const bool of_coordinator = fault.worker < 0;
  WorkerMachine* const machine =
      of_coordinator ? nullptr
                     : workers_[static_cast<size_t>(fault.worker)].get();
  FaultFileSystem* const fs =
      of_coordinator ? &coordinator_fs_ : machine->fs.get();
  Say("plan", Describe(fault));
  switch (fault.kind) {
    case FaultKind::kCoordinatorCrash:
    case FaultKind::kRottenImage: {
      if (server_ == nullptr) return;
      const auto crash = [this, fault, life = coordinator_life_] {
        if (life != coordinator_life_) return;
        EndCoordinator(fault.power_cut, fault.keep, fault.lasts);
        if (fault.kind == FaultKind::kRottenImage) RotImage(fault);
      };
      // In the middle of what it does next.
      coordinator_fs_.StopAfter(
          fault.n, [this, crash, server = std::weak_ptr<Server>(server_)] {
            if (const auto dying = server.lock()) dying->alive = false;
            world_.After(absl::ZeroDuration(), crash);
          });
      world_.After(kCrashPatience, crash);
      return;
    }
    case FaultKind::kWorkerCrash: {
      if (!machine->running) return;
      const auto crash = [this, fault, life = machine->life] {
        if (workers_[static_cast<size_t>(fault.worker)]->life == life) {
          EndWorker(fault.worker, fault.power_cut, fault.keep, fault.lasts);
        }
      };
      fs->StopAfter(fault.n, [this, machine, crash] {
        if (machine->port != nullptr) machine->port->Kill();
        world_.After(absl::ZeroDuration(), crash);
      });
      world_.After(kCrashPatience, crash);
      return;
    }
    case FaultKind::kWorkerLosesScratch:
      if (!machine->running) return;
      EndWorker(fault.worker, false, 0, fault.lasts);
      machine->fs = std::make_unique<FaultFileSystem>();
      return;
    case FaultKind::kWorkerLeaves:
      machine->stop = true;
      machine->back_after = fault.lasts;
      return;
    case FaultKind::kCut:
      network_.Cut(fault.worker, fault.lasts);
      return;
    case FaultKind::kSlow:
      machine->slow = fault.factor;
      world_.After(fault.lasts, [machine] { machine->slow = 1; });
      return;
    case FaultKind::kDiskFull:
      fs->set_space(fs->bytes_used() + kRoomOfFullDisk);
      world_.After(fault.lasts, [this, fault] {
        FaultFileSystem* const disk =
            fault.worker < 0
                ? &coordinator_fs_
                : workers_[static_cast<size_t>(fault.worker)]->fs.get();
        disk->set_space(UINT64_MAX);
        Say("plan", fault.worker < 0 ? "the coordinator's disk has space"
                                     : "a worker's disk has space");
      });
      return;
    case FaultKind::kFailedSync:
      fs->FailSync(fault.n);
      return;
    case FaultKind::kFailedWrite:
      fs->FailWrite(fault.n, fault.keep);
      return;
    case FaultKind::kLostRequest:
    case FaultKind::kLostReply:
    case FaultKind::kLateRequest:
    case FaultKind::kRepeated:
    case FaultKind::kCorrupted:
      network_.Arm(fault);
      return;
    case FaultKind::kPause:
      Order(PauseEvent{true, "the plan"}, [this, fault] {
        world_.After(fault.lasts, [this] {
          Order(PauseEvent{false, ""}, nullptr);
        });
      });
      return;
    case FaultKind::kDrain:
      machine->back_after = fault.lasts;
      machine->drained = true;
      Order(DrainEvent{WorkerName(fault.worker)}, nullptr);
      return;
  }
}

// Of the newest image, one of two files. Once in a run, and not without another
// image before: no disk that loses both of them can be made up for.
void Simulation::RotImage(const Fault& fault) {
  const std::string dir = JoinPath(kStateDir, kImageDir);
  absl::StatusOr<std::vector<std::string>> names = coordinator_fs_.List(dir);
  if (rotten_ || !names.ok()) return;
  // Each fragment has images of its own.
  const std::string prefix =
      absl::StrFormat("f%02d-", fault.keep % options_.fragments);
  std::vector<std::string> images;
  for (const std::string& name : *names) {
    if (absl::StartsWith(name, prefix) &&
        absl::EndsWith(name, fault.n % 2 == 0 ? ".theta" : ".momentum")) {
      images.push_back(name);
    }
  }
  std::sort(images.begin(), images.end());
  if (images.size() < 2) return;
  rotten_ = true;
  Say("plan", absl::StrCat(images.back(), " rots"));
  coordinator_fs_.FlipBit(JoinPath(dir, images.back()), 150 + fault.keep % 100,
                          fault.n % 8);
}

// Until the coordinator has taken it; `then` (may be null) follows.
void Simulation::Order(const Event& event, const std::function<void()>& then) {
  const auto again = [this, event, then] {
    world_.After(absl::Seconds(1), [this, event, then] { Order(event, then); });
  };
  if (server_ == nullptr || server_->coordinator == nullptr ||
      !server_->alive) {
    return again();
  }
  server_->coordinator->Admin(
      event, [again, then, server = std::weak_ptr<Server>(server_)](
                 const absl::Status& status) {
        const std::shared_ptr<Server> asked = server.lock();
        if (asked == nullptr || !asked->alive || absl::IsUnavailable(status)) {
          return again();
        }
        if (then) then();
      });
}

void Simulation::Look() {
  const absl::Duration passed = world_.Now() - looked_;
  looked_ = world_.Now();
  const bool served = server_ != nullptr && server_->coordinator != nullptr &&
                      server_->coordinator->NotReady().empty();
  if (!served) return oracle_->StoodStill(passed);
  oracle_->CheckDeadline(looked_);
  for (int i = 0; i < options_.workers; ++i) {
    const WorkerMachine& machine = *workers_[static_cast<size_t>(i)];
    if (machine.running && machine.port != nullptr && machine.port->busy() &&
        !network_.IsCut(i)) {
      busy_ += passed;
    }
  }
}

SimResult Simulation::Run() {
  for (size_t i = 0; i < plan_.faults.size(); ++i) {
    const bool kept = !options_.only.has_value() ||
                      std::find(options_.only->begin(), options_.only->end(),
                                i) != options_.only->end();
    if (!kept) continue;
    world_.At(plan_.faults[i].at, [this, i] { Strike(plan_.faults[i]); });
  }
  // Ids of two bytes, all 0.
  const absl::Status shard = WriteFileAtomic(
      &coordinator_fs_, kEvalShard,
      std::string(2 * (kEvalWindows * settings_.train.seq_len + 1), '\0'));
  DILOCO_CHECK(shard.ok()) << shard.message();
  if (options_.plant == Plant::kSkipFsync) coordinator_fs_.set_sync_lies(true);
  StartCoordinator();
  for (int i = 0; i < options_.workers; ++i) {
    world_.At(plan_.start[static_cast<size_t>(i)],
              [this, i] { StartWorker(i); });
  }
  const Instant limit = 12 * plan_.nominal + absl::Hours(1);
  while (oracle_->broken().empty() && !AllDone()) {
    if (!world_.Step()) {
      oracle_->Break("nothing will ever happen any more");
      break;
    }
    if (world_.Now() - looked_ >= absl::Seconds(1)) Look();
    if (world_.Now() > limit) {
      oracle_->Break(absl::StrCat("the run does not end: at version ",
                                  oracle_->state().fragments.empty()
                                      ? 0
                                      : oracle_->state().fragments[0].version,
                                  " after ", absl::FormatDuration(limit)));
    }
  }
  SimResult result;
  result.took = world_.Now();
  StepIds outstanding;
  for (const auto& machine : workers_) {
    if (machine->trainer == nullptr) continue;
    const StepIds window = machine->trainer->unsent();
    outstanding.insert(outstanding.end(), window.begin(), window.end());
  }
  if (oracle_->broken().empty()) oracle_->Close(outstanding);
  result.ledger = oracle_->ledger();
  const absl::Duration transfers = static_cast<int64_t>(result.ledger.updates) *
                                   MeanTransfer(result.ledger.update_bytes);
  result.busy = std::max(absl::ZeroDuration(), busy_ - transfers);
  result.broken = oracle_->broken();
  if (!result.broken.empty()) Say("oracle", result.broken);
  for (int i = 0; i < options_.workers; ++i) {
    EndWorker(i, false, 0, absl::ZeroDuration());
  }
  EndCoordinator(false, 0, absl::ZeroDuration());
  result.restarts = starts_ - 1;
  result.facts = oracle_->facts();
  result.tokens_made = oracle_->tokens_made();
  result.tokens_folded = oracle_->tokens_folded() / options_.fragments;
  result.digest = oracle_->digest();
  result.version = ThetaVersion(oracle_->state());
  return result;
}

}  // namespace diloco::sim

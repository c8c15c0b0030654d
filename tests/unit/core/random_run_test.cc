// Random events against the machine, with a seed; after each, what must hold
// in every run is checked, and at the end the recorded facts alone must lead
// to the same state.
#include <random>
#include <set>

#include "tests/support/catch.h"
#include "tests/unit/core/core_run.h"

namespace diloco {
namespace {

// Checks the facts of one run in the order they were recorded.
class Invariants {
 public:
  void Check(const CoreRun& run) {
    for (; seen_ < run.facts.size(); ++seen_) {
      std::visit([this](const auto& fact) { On(fact); }, run.facts[seen_]);
    }
    // No round with min_updates waits past its deadline.
    if (run.open()) {
      const bool overdue = run.now - run.soft.rounds[0].deadline_from >=
                           run.open_round().deadline;
      size_t usable = 0;
      for (const auto& [name, update] : run.open_round().committed) {
        usable += run.state.workers.at(name).membership != Membership::kEvicted;
      }
      const bool late = overdue && usable >= run.policy.min_updates;
      REQUIRE_FALSE(late);
    }
  }

  int late_leases = 0;

 private:
  template <typename F>
  void On(const F&) {}

  void On(const RoundOpened& fact) {
    REQUIRE_FALSE(finished_);
    REQUIRE(fact.round == round_ + 1);
    REQUIRE(fact.base_version == version_);
    REQUIRE_FALSE(fact.leases.empty());
    round_ = fact.round;
    leases_.clear();
    late_.clear();
    committed_.clear();
    refused_.clear();
    Add(fact.leases);
  }
  void On(const RoundExtended& fact) { Add(fact.added); }
  void On(const LeaseAdded& fact) {
    REQUIRE(fact.round == round_);
    const double before = reached_[fact.lease.worker];
    double end = 0;
    for (const auto& [name, lease] : leases_) {
      if (late_.count(name) == 0) end = std::max(end, EndOf(lease));
    }
    Add({fact.lease});
    // Its window may outlast the round.
    reached_[fact.lease.worker] =
        std::max(before, std::min(EndOf(fact.lease), end));
    late_.insert(fact.lease.worker);
    ++late_leases;
  }
  static double EndOf(const Lease& lease) {
    return lease.progress + lease.steps * lease.progress_step;
  }
  void Add(const std::vector<Lease>& leases) {
    for (const Lease& lease : leases) {
      REQUIRE(lease.progress >= 0);
      REQUIRE(lease.progress_step >= 0);
      if (lease.window_steps == 0) REQUIRE(EndOf(lease) <= 1.0 + 1e-9);
      REQUIRE(lease.progress >= reached_[lease.worker] - 1e-12);
      reached_[lease.worker] = EndOf(lease);
      REQUIRE(leases_.emplace(lease.worker, lease).second);
    }
  }
  void On(const WorkerJoined& fact) {
    const auto lease = leases_.find(fact.worker);
    if (!fact.fresh || lease == leases_.end() ||
        committed_.count(fact.worker) != 0) {
      return;
    }
    lease->second.tokens -= lease->second.carried_tokens;
    lease->second.carried_tokens = 0;
  }
  void On(const UpdateCommitted& fact) {
    REQUIRE(fact.round == round_);
    REQUIRE(leases_.count(fact.worker) == 1);
    REQUIRE(refused_.count(fact.worker) == 0);
    REQUIRE(committed_.emplace(fact.worker, fact).second);
  }
  void On(const UpdateRefused& fact) {
    REQUIRE(fact.round == round_);
    REQUIRE(committed_.count(fact.worker) == 0);
    REQUIRE(refused_.insert(fact.worker).second);
  }
  void On(const RoundClosed& fact) {
    REQUIRE(fact.round == round_);
    // Each committed update is in exactly one fold, or its worker is named.
    std::set<std::string> named(fact.missing.begin(), fact.missing.end());
    REQUIRE(named.size() == fact.missing.size());
    closed_tokens_ = 0;
    for (const RoundMember& member : fact.members) {
      REQUIRE(named.insert(member.worker).second);
      REQUIRE(committed_.count(member.worker) == 1);
      const UpdateCommitted& update = committed_.at(member.worker);
      REQUIRE(member.digest == update.value.digest);
      REQUIRE(member.weight ==
              std::min(update.value.tokens, leases_.at(member.worker).tokens));
      closed_tokens_ += member.tokens;
    }
    // Who came late and has delivered nothing goes on.
    for (const auto& [name, lease] : leases_) {
      const bool goes_on = late_.count(name) != 0 &&
                           committed_.count(name) == 0 &&
                           refused_.count(name) == 0;
      REQUIRE(named.erase(name) == (goes_on ? 0 : 1));
    }
    REQUIRE(named.empty());
    folding_ = !fact.members.empty();
  }
  void On(const VersionPublished& fact) {
    REQUIRE(folding_);
    REQUIRE(fact.round == round_);
    REQUIRE(fact.version == version_ + 1);
    tokens_ += closed_tokens_;
    REQUIRE(fact.folded_tokens == tokens_);
    version_ = fact.version;
    folding_ = false;
  }
  void On(const RunFinished&) { finished_ = true; }

  size_t seen_ = 0;
  uint64_t round_ = 0;
  uint64_t version_ = 0;
  uint64_t tokens_ = 0;
  uint64_t closed_tokens_ = 0;
  bool folding_ = false;
  bool finished_ = false;
  std::map<std::string, Lease> leases_;
  std::map<std::string, UpdateCommitted> committed_;
  std::set<std::string> refused_;
  std::set<std::string> late_;
  std::map<std::string, double> reached_;
};

class Driver {
 public:
  explicit Driver(uint32_t seed) : random_(seed) {
    run.policy.train_tokens = 5000 + Below(100'000);
    run.policy.interval = 1 + Below(20);
    run.policy.interval_first = Below(5);
    run.policy.rounds_first = Below(5);
    run.policy.min_updates = 1 + Below(3);
    run.policy.short_round = static_cast<ShortRound>(Below(3));
    run.policy.late = Below(2) ? LatePolicy::kCarry : LatePolicy::kReject;
    if (Below(2)) run.policy.deadline = absl::Seconds(5 + Below(60));
    run.policy.eval_every = Below(4);
    run.policy.eval_windows = Below(10);
    run.policy.max_workers = 4;
  }

  void Act() {
    const std::string worker(1, static_cast<char>('a' + Below(5)));
    switch (Below(24)) {
      case 0:
      case 1:
        Join(worker);
        break;
      case 2:
        run.Do(LeaveEvent{worker, "SIGTERM"});
        break;
      case 3:
        if (Below(10) == 0) run.Do(EvictEvent{worker, "random"});
        break;
      case 4:
        if (Below(4) == 0) run.Do(DrainEvent{worker});
        break;
      case 5:
        run.Do(PauseEvent{Below(4) == 0, "random"});
        break;
      case 6:
        run.Refuse(worker);
        break;
      case 7:
        run.now += absl::Seconds(Below(40));
        break;
      case 8:
        Restart();
        break;
      case 9:
        ReportEval();
        break;
      case 10:
        if (Below(60) == 0) run.Do(StopEvent{});
        break;
      case 11: {
        UpdateVerifiedEvent event = run.Verified(worker, run.Value(worker));
        event.round = Below(static_cast<uint32_t>(run.round()) + 3);
        event.fragment = Below(10) == 0 ? 1 : 0;
        run.Do(event);
        break;
      }
      case 12:
      case 13:
      case 14:
      case 15:
      case 16:
        run.Deliver(worker, Below(3000));
        break;
      case 17:
      case 18:
      case 19:
        if (run.folding()) run.Fold();
        break;
      default:
        run.now += absl::Milliseconds(Below(2000));
        Beat(worker);
    }
    run.Tick();
  }

  CoreRun run;

 private:
  uint32_t Below(uint32_t limit) { return random_() % limit; }

  void Join(const std::string& worker) {
    const auto known = run.state.workers.find(worker);
    JoinEvent event;
    event.worker = worker;
    event.attempt = absl::StrCat("attempt", random_());
    event.new_session = absl::StrCat("session", random_());
    if (known != run.state.workers.end() && Below(3) != 0) {
      event.previous_session = Below(3) == 0 ? known->second.previous_session
                                             : known->second.session;
    }
    event.fresh = Below(3) == 0;
    event.take_over = Below(4) == 0;
    run.Do(event);
  }
  void Restart() {
    run.now = absl::Seconds(Below(10'000));
    run.soft = StartSoft(run.state, run.now);
  }
  // What it says of its window may be right, old or invented.
  void Beat(const std::string& worker) {
    BeatEvent beat{worker, Below(10) == 0 ? 50.0 : Below(100) / 10.0, {}};
    if (Below(4) != 0) {
      WindowReport& report = beat.window.emplace();
      report.round = run.round() - std::min<uint64_t>(run.round(), Below(3));
      report.leased_steps = Below(30);
      report.steps = Below(50);
      report.tokens = 100 * Below(60);
      report.version =
          run.version() - std::min<uint64_t>(run.version(), Below(2));
      if (Below(4) != 0) report.digest = CoreRun::VersionDigest(run.version());
    }
    run.Do(beat);
    if (Below(20) == 0 && run.View(worker).probe.has_value()) {
      const EvalView slice = *run.View(worker).probe;
      run.Do(ProbeEvent{worker, slice.version, slice.first_window,
                        slice.windows, 1.0 + Below(9), 1 + Below(9)});
    }
  }
  void ReportEval() {
    if (!run.state.eval.has_value()) return;
    const uint32_t slice =
        Below(static_cast<uint32_t>(run.state.eval->slices.size()));
    run.Do(EvalReportEvent{run.state.eval->slices[slice].worker,
                           run.state.eval->version, slice, 1.0 + Below(9),
                           1 + Below(9)});
  }

  std::mt19937 random_;
};

TEST_CASE("C6.1 C6.3 C6.4 C6.5 any order of events keeps the invariants") {
  uint64_t published = 0;
  int finished = 0;
  int late_leases = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    Driver driver(seed);
    Invariants invariants;
    for (int i = 0; i < 600; ++i) {
      driver.Act();
      invariants.Check(driver.run);
    }
    published += driver.run.version();
    finished += driver.run.state.finished;
    late_leases += invariants.late_leases;

    State replayed;
    for (const Fact& fact : driver.run.facts) {
      REQUIRE(Evolve(replayed, fact).ok());
    }
    REQUIRE(replayed == driver.run.state);
  }
  // The events do get somewhere.
  REQUIRE(published > 300);
  REQUIRE(finished > 5);
  REQUIRE(late_leases > 50);
}

}  // namespace
}  // namespace diloco

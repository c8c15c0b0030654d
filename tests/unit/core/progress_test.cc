// Schedules by progress with machines of unlike speed: what the coordinator
// leases and what the workers make of it.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "tests/support/catch.h"
#include "tests/unit/core/core_run.h"
#include "worker/core/schedule.h"

namespace diloco {
namespace {

constexpr uint64_t kBatch = 100;
constexpr double kTick = 0.5;

// A worker that trains whatever it is leased, one step in `step_seconds`.
struct Machine {
  double step_seconds = 1;
  double next_step = 0;
  uint64_t round = 0;
  uint32_t steps_done = 0;  // Of the lease.
  uint32_t steps = 0;       // In the window.
  std::optional<double> progress;
  double furthest_jump = 0;  // Between two steps, in rounds a second.
  double furthest_off = 0;   // From the tokens folded, in rounds.
};

struct Speeds {
  Speeds() {
    run.policy.wait_for = 4;
    run.policy.interval = 20;
    run.policy.train_tokens = 800 * kBatch * 4;
    for (const char* name : {"a", "b", "half", "quarter"}) run.Join(name);
    machines["a"].step_seconds = machines["b"].step_seconds = 1;
    machines["half"].step_seconds = 2;
    machines["quarter"].step_seconds = 4;
  }

  double Share(uint64_t tokens) const {
    return static_cast<double>(tokens) /
           static_cast<double>(run.policy.train_tokens);
  }
  double done() const { return Share(run.state.folded_tokens); }
  // What the open round is expected to fold.
  double Width() const {
    uint64_t tokens = 0;
    for (const auto& [name, lease] : run.open_round().leases) {
      if (run.open_round().late.count(name) == 0) tokens += lease.tokens;
    }
    return Share(tokens);
  }

  void Beat(const std::string& name, const Machine& machine) {
    BeatEvent beat{name, machine.step_seconds, WindowReport{}};
    beat.window->round = machine.round;
    beat.window->leased_steps = machine.steps_done;
    beat.window->steps = machine.steps;
    beat.window->tokens = machine.steps * kBatch;
    beat.window->version = run.version();
    beat.window->digest = CoreRun::VersionDigest(run.version());
    run.Do(beat);
  }

  void Step(const Lease& lease, Machine& machine) {
    const double progress = FollowProgress(
        machine.progress,
        ProgressAtStep(lease.progress, lease.progress_step, machine.steps_done),
        lease.progress_step, lease.steps);
    const double width = Width();
    if (machine.progress.has_value()) {
      REQUIRE(progress >= *machine.progress);
      machine.furthest_jump =
          std::max(machine.furthest_jump, (progress - *machine.progress) /
                                              width / machine.step_seconds);
    }
    machine.furthest_off =
        std::max(machine.furthest_off, std::abs(progress - done()) / width);
    machine.progress = progress;
    ++machine.steps_done;
    ++machine.steps;
  }

  void Work(const std::string& name, Machine& machine) {
    const WorkerView view = run.View(name);
    if (view.leases.empty() || view.leases[0].delivered) return;
    const Lease lease = view.leases[0].lease;
    if (view.leases[0].round != machine.round) {
      machine.round = view.leases[0].round;
      machine.steps_done = 0;
      // Steps go on over the boundary.
      machine.next_step = std::max(machine.next_step, now);
    }
    const auto over = [&] {
      return machine.steps_done >= lease.steps ||
             (lease.window_steps > 0 && machine.steps >= lease.window_steps);
    };
    if (!over() && now >= machine.next_step) {
      Step(lease, machine);
      machine.next_step = now + machine.step_seconds;
    }
    if (!over()) return;
    Beat(name, machine);
    REQUIRE(run.Deliver(name, std::min<uint64_t>(machine.steps * kBatch,
                                                 lease.tokens))
                .status.ok());
    machine.steps = 0;
  }

  void RunTo(double progress) {
    const double give_up = now + 1e5;
    while (done() < progress) {
      REQUIRE(now < give_up);
      now += kTick;
      run.now += absl::Seconds(kTick);
      for (auto& [name, machine] : machines) {
        if (std::fmod(now, 2.0) == 0) Beat(name, machine);
        Work(name, machine);
      }
      run.Tick();
      if (run.folding()) run.Fold();
    }
  }

  CoreRun run;
  double now = 0;
  std::map<std::string, Machine> machines;
};

TEST_CASE(
    "machines of speed 1, 1/2 and 1/4, a join and an eviction: every rate "
    "follows the tokens folded and none jumps") {
  Speeds speeds;
  CoreRun& run = speeds.run;
  speeds.RunTo(0.4);
  // The slowest one's windows outlast rounds.
  REQUIRE(run.Count<LeaseAdded>() > 5);
  run.Join("late");
  speeds.machines["late"].step_seconds = 1;
  speeds.RunTo(0.6);
  REQUIRE(run.Do(EvictEvent{"b", "test"}).status.ok());
  speeds.machines.erase("b");
  speeds.RunTo(0.9);
  // A round takes 40 s: a step of s seconds crosses s / 40 of it.
  for (const auto& [name, machine] : speeds.machines) {
    CAPTURE(name);
    CHECK(machine.steps_done + machine.round > 0);
    CHECK(machine.furthest_off <= 1.0 + 1e-9);
    CHECK(machine.furthest_jump <= 2.5 / 20);
  }
}

}  // namespace
}  // namespace diloco

// Several fragments: rounds that are open at the same time, each with its own
// windows, versions and tokens, and one run made of them.
#include <cmath>
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/round_policy.h"
#include "tests/support/catch.h"
#include "tests/unit/core/core_run.h"

namespace diloco {
namespace {

constexpr uint32_t kFragments = 3;

// H 6, offsets 0, 2 and 4, as in the streaming reference; 100 tokens a step.
struct FragmentRun : CoreRun {
  FragmentRun() : CoreRun(kFragments) {
    policy.interval = 6;
    REQUIRE(Join("a").status.ok());
    REQUIRE(Join("b").status.ok());
  }

  const FragmentState& of(uint32_t fragment) const {
    return state.fragments[fragment];
  }
  uint32_t Steps(uint32_t fragment) const {
    return of(fragment).open->leases.at("a").steps;
  }
  void Round(uint32_t fragment) {
    REQUIRE(Deliver("a", 0, fragment).status.ok());
    REQUIRE(Deliver("b", 0, fragment).status.ok());
    REQUIRE(Fold(fragment).status.ok());
  }
  // As if both workers trained step by step, each update at once: returns the
  // fragments in the order of their rounds, with the step after which.
  std::vector<std::pair<uint64_t, uint32_t>> Train(uint64_t steps) {
    std::vector<std::pair<uint64_t, uint32_t>> due;
    for (uint64_t end = step_ + steps; step_ < end && !state.finished;) {
      ++step_;
      for (uint32_t f = 0; f < kFragments; ++f) {
        if (!of(f).open.has_value()) continue;
        if (step_ - taken_[f] < Steps(f)) continue;
        due.push_back({step_, f});
        taken_[f] = step_;
        Round(f);
      }
    }
    return due;
  }

 private:
  uint64_t step_ = 0;
  std::map<uint32_t, uint64_t> taken_;
};

using Due = std::vector<std::pair<uint64_t, uint32_t>>;

TEST_CASE("a run's first rounds are of the same workers in all fragments") {
  CoreRun run(kFragments);
  run.policy.interval = 6;
  run.policy.wait_for = 2;
  const bool holds = GENERATE(true, false);
  for (const char* name : {"a", "b"}) {
    JoinEvent joiner;
    joiner.worker = name;
    joiner.attempt = absl::StrCat("attempt ", name);
    joiner.new_session = absl::StrCat("session ", name);
    joiner.fresh = true;
    REQUIRE(run.Do(joiner).status.ok());
    // The first one holds theta by the time the other comes, or downloads it.
    BeatEvent beat{"a", 1.0, WindowReport{}};
    if (holds) beat.window->digest = CoreRun::VersionDigest(0);
    run.Do(beat);
  }
  for (const FragmentState& fragment : run.state.fragments) {
    REQUIRE(fragment.open.has_value());
    REQUIRE(fragment.open->leases.size() == 2);
  }
}

TEST_CASE("fragments are due at their offsets, again and again") {
  FragmentRun run;
  for (uint32_t f = 0; f < kFragments; ++f) REQUIRE(run.of(f).open.has_value());
  CHECK(run.Steps(0) == 6);
  CHECK(run.Steps(1) == 2);
  CHECK(run.Steps(2) == 4);
  CHECK(absl::StrContains(run.of(1).open->reason, "2 steps each, up to the"));
  CHECK(run.Train(18) == Due{{2, 1},
                             {4, 2},
                             {6, 0},
                             {8, 1},
                             {10, 2},
                             {12, 0},
                             {14, 1},
                             {16, 2},
                             {18, 0}});
  CHECK(ThetaVersion(run.state) == 9);
  CHECK(ThetaVersions(run.state) == std::vector<uint64_t>{3, 3, 3});
}

TEST_CASE("in an even run each round's due step is that of its takes") {
  FragmentRun run;
  for (uint64_t step = 1; step <= 20; ++step) {
    std::vector<uint64_t> due_steps;
    for (uint32_t f = 0; f < kFragments; ++f) {
      due_steps.push_back(run.of(f).due_step);
    }
    for (const auto& [at, fragment] : run.Train(1)) {
      REQUIRE(due_steps[fragment] == at);
    }
  }
  // Steps 6, 12 and 18 of the first one.
  CHECK(run.of(0).due_step == 24);
}

TEST_CASE("a fragment whose round took long keeps its place among the others") {
  FragmentRun run;
  for (int i = 0; i < 3; ++i) run.Round(0);
  REQUIRE(run.of(0).due_step == 24);
  REQUIRE(run.of(1).due_step == 2);
  run.Round(1);
  CHECK(run.of(1).due_step == 20);
  CHECK(run.of(0).due_step == 24);
}

TEST_CASE("a round has the rest of a window once those before it have ended") {
  FragmentRun run;
  run.policy.deadline = absl::Seconds(60);
  run.Train(6);  // All are in their second windows: due at 12, 8 and 10.
  REQUIRE(run.of(0).due_step == 12);
  REQUIRE(run.of(1).due_step == 8);
  REQUIRE(run.of(2).due_step == 10);
  REQUIRE(run.Deliver("a", 0, 0).status.ok());
  REQUIRE(run.Deliver("a", 0, 1).status.ok());
  REQUIRE(run.Deliver("a", 0, 2).status.ok());
  for (int i = 0; i < 59; ++i) run.Pass(absl::Seconds(1), {"a", "b"});
  REQUIRE(run.of(0).open.has_value());
  REQUIRE(run.of(1).open.has_value());
  run.Pass(absl::Seconds(1), {"a", "b"});
  // The first in the order is over; two and four of six steps are left then.
  REQUIRE(run.of(1).folding.has_value());
  REQUIRE(run.of(2).open.has_value());
  for (int i = 0; i < 19; ++i) run.Pass(absl::Seconds(1), {"a", "b"});
  REQUIRE(run.of(2).open.has_value());
  run.Pass(absl::Seconds(1), {"a", "b"});
  REQUIRE(run.of(2).folding.has_value());
  REQUIRE(run.of(0).open.has_value());
  REQUIRE(run.Deliver("b", 0, 0).status.ok());
  CHECK(run.of(0).folding.has_value());
}

TEST_CASE("where results may slip in no round waits for another's end") {
  FragmentRun run;
  run.policy.deadline = absl::Seconds(60);
  run.policy.exact = false;
  run.Train(6);
  for (uint32_t f = 0; f < kFragments; ++f) {
    REQUIRE(run.Deliver("a", 0, f).status.ok());
  }
  for (int i = 0; i < 60; ++i) run.Pass(absl::Seconds(1), {"a", "b"});
  for (uint32_t f = 0; f < kFragments; ++f) {
    CHECK(run.of(f).folding.has_value());
  }
}

TEST_CASE("a round of one fragment closes and folds beside the others'") {
  FragmentRun run;
  run.Deliver("a", 0, 1);
  run.Deliver("b", 0, 1);
  CHECK(run.of(1).folding.has_value());
  CHECK(run.of(0).open.has_value());
  REQUIRE(run.Deliver("a", 0, 2).status.ok());
  run.Deliver("b", 0, 2);
  // Two folds are in flight; the later one is done first.
  CHECK(run.of(2).folding.has_value());
  REQUIRE(run.Fold(2).status.ok());
  CHECK(run.of(2).version == 1);
  CHECK(run.of(2).open->round == 2);
  CHECK(run.of(1).version == 0);
  REQUIRE(run.Fold(1).status.ok());
  CHECK(ThetaVersions(run.state) == std::vector<uint64_t>{0, 1, 1});
  // An update is judged by its own fragment's round and version.
  CHECK(run.Do(run.Verified("a", run.Value("a", 0, 0), 1)).status.code() ==
        absl::StatusCode::kInvalidArgument);
  const WorkerView view = run.View("a");
  REQUIRE(view.leases.size() == kFragments);
  CHECK(view.leases[1].base_version == 1);
  CHECK(view.leases[0].base_version == 0);
  CHECK_FALSE(view.leases[0].last);
}

TEST_CASE("tokens count once for all fragments; progress follows the steps") {
  FragmentRun run;
  run.Train(2);
  // 2 steps of 2 workers are in one of three fragments.
  CHECK(run.of(1).folded_tokens == 400);
  CHECK(run.state.folded_tokens == 400 / 3);
  // What all fragments show of the schedule at step 2 is the same.
  const Lease& next = run.of(1).open->leases.at("a");
  const Lease& first = run.of(0).open->leases.at("a");
  CHECK(next.progress == Approx(400.0 / 100'000));
  CHECK(first.progress + 2 * first.progress_step == Approx(next.progress));
  CHECK(first.progress_step == Approx(next.progress_step));
  run.Train(4);
  CHECK(run.state.folded_tokens == (1200 + 400 + 800) / 3);
  CHECK(run.state.workers.at("a").tokens_folded == 400);
}

TEST_CASE("at the last step every fragment is due, and the run is over") {
  FragmentRun run;
  run.policy.train_tokens = 2 * 100 * 15;
  Due due = run.Train(12);
  CHECK(due.back() == std::pair<uint64_t, uint32_t>{12, 0});
  // Windows of 1, 3 and 5 steps are left.
  CHECK(run.Steps(0) == 3);
  CHECK(run.Steps(1) == 6);
  CHECK(run.Steps(2) == 5);
  const WorkerView view = run.View("a");
  CHECK(view.leases[0].last);
  CHECK_FALSE(view.leases[1].last);
  CHECK(view.leases[2].last);
  CHECK(run.Train(3) == Due{{14, 1}, {15, 0}, {15, 1}, {15, 2}});
  CHECK(run.state.finished);
  CHECK(run.state.folded_tokens == 3000);
  CHECK(absl::StrContains(run.state.finish_reason, "3000 of 3000"));
}

TEST_CASE("a stop ends all fragments with a round of the first one") {
  FragmentRun run;
  run.Train(9);
  REQUIRE(run.Do(StopEvent{std::nullopt, "enough"}).status.ok());
  // Fragment 1 is in its third round already.
  CHECK(run.state.stop_after_round == 3);
  CHECK(run.Train(100) ==
        Due{{10, 2}, {12, 0}, {14, 1}, {16, 2}, {18, 0}, {18, 1}, {18, 2}});
  CHECK(run.state.finished);
  CHECK(absl::StrContains(run.state.finish_reason, "stopped after round 3"));
}

TEST_CASE("changed settings wait until no round of any fragment is open") {
  FragmentRun run;
  run.Train(6);
  SettingsEvent event;
  event.changes = {{"sync.interval", "6", "9", false}};
  event.settings_digest = Sha256("new");
  REQUIRE(run.Do(event).status.ok());
  CHECK(run.state.settings.in_force.empty());
  run.Round(1);
  // None opens meanwhile, and it says why.
  CHECK_FALSE(run.of(1).open.has_value());
  CHECK(absl::StrContains(run.View("a").notice, "settings were changed"));
  run.Round(0);
  CHECK(run.state.settings.in_force.empty());
  run.Deliver("a", 0, 2);
  run.Deliver("b", 0, 2);
  CHECK(run.state.settings.in_force.size() == 1);
  run.policy.interval = 9;
  run.Tick();
  CHECK(run.of(0).open.has_value());
  CHECK(run.Steps(0) == 9);
  CHECK(run.Steps(1) == 9);
}

TEST_CASE("theta is evaluated as a vector of versions, once a round") {
  FragmentRun run;
  run.policy.eval_every = 1;
  run.policy.eval_windows = 4;
  run.Tick();
  const auto report = [&](double loss) {
    const EvalState eval = *run.state.eval;
    for (uint32_t i = 0; i < eval.slices.size(); ++i) {
      REQUIRE(run.Do(EvalReportEvent{eval.slices[i].worker, eval.version, i,
                                     loss, 10})
                  .status.ok());
    }
  };
  REQUIRE(run.state.eval.has_value());
  CHECK(run.state.eval->versions == std::vector<uint64_t>{0, 0, 0});
  // Workers that hold other versions by now had their turn before.
  run.Train(4);
  CHECK(run.state.eval->version == 0);
  report(30);
  CHECK_FALSE(run.state.eval.has_value());
  run.Train(2);
  REQUIRE(run.state.eval.has_value());
  CHECK(run.state.eval->version == 3);
  CHECK(run.state.eval->versions == std::vector<uint64_t>{1, 1, 1});
  CHECK(run.View("a").evals.at(0).versions == run.state.eval->versions);
  // The next round's versions take its place.
  run.Train(6);
  CHECK(run.Count<EvalAbandoned>() == 1);
  CHECK(run.state.eval->version == 6);
  report(20);
  CHECK(run.state.last_eval->version == 6);
  REQUIRE(run.View("a").probe.has_value());
  CHECK(run.View("a").probe->versions == std::vector<uint64_t>{2, 2, 2});
  run.Train(2);
  CHECK_FALSE(run.View("a").probe.has_value());
}

TEST_CASE("a lineage goes on at the offsets, with each fragment's tokens") {
  FragmentRun run;
  run.Train(9);
  const State before = run.state;
  LineageStarted lineage;
  lineage.lineage = std::string(16, 'm');
  for (uint32_t f = 0; f < kFragments; ++f) {
    LineageStarted::Fragment& begin = lineage.fragments.emplace_back();
    begin.version = 1;
    begin.digest = CoreRun::VersionDigest(1);
    begin.folded_tokens = 400 * (f == 0 ? 3 : f);
  }
  REQUIRE(Evolve(run.state, lineage).ok());
  CHECK(run.state.folded_tokens == (1200 + 400 + 800) / 3);
  CHECK(run.of(1).folded_tokens == 400);
  REQUIRE(run.Join("a").status.ok());
  REQUIRE(run.Join("b").status.ok());
  CHECK(run.Steps(0) == 6);
  CHECK(run.Steps(1) == 2);
  CHECK(run.Steps(2) == 4);
  CHECK(run.of(1).open->round > before.fragments[1].last_round);
}

TEST_CASE("beats tell of every fragment; norms are compared within one") {
  FragmentRun run;
  BeatEvent beat{"a", 1.0, WindowReport{1, 1, 1, 100, 0, Sha256("x")}};
  beat.others = {{1, 2, 2, 200, 0, Sha256("y"), 1},
                 {1, 1, 1, 100, 0, std::nullopt, 2}};
  REQUIRE(run.Do(beat).status.ok());
  CHECK(run.soft.workers.at("a").windows.at(1).leased_steps == 2);
  // Without one of the fragments it is still downloading.
  CHECK(WhoIsEligible(run.policy, run.state, run.soft, run.now).workers ==
        Names{"b"});
  // Unless it has trained since: then that beat is old.
  REQUIRE(run.Deliver("a", 0, 1).status.ok());
  CHECK(WhoIsEligible(run.policy, run.state, run.soft, run.now).workers ==
        Names{"a", "b"});

  FragmentRun other;
  other.policy.guard_norm_jump = 3;
  for (int round = 0; round < 5; ++round) {
    for (uint32_t f = 0; f < kFragments; ++f) {
      for (const char* name : {"a", "b"}) {
        UpdateVerifiedEvent update =
            other.Verified(name, other.Value(name, 0, f), f);
        update.norm = std::pow(10.0, f);
        REQUIRE(other.Do(update).status.ok());
      }
      REQUIRE(other.Fold(f).status.ok());
    }
  }
  CHECK_FALSE(other.state.paused);
  UpdateVerifiedEvent jump = other.Verified("a", other.Value("a", 0, 0), 0);
  jump.norm = 10;
  REQUIRE(other.Do(jump).status.ok());
  CHECK(other.state.paused);
}

TEST_CASE("what a worker carries belongs to its fragment") {
  FragmentRun run;
  run.policy.deadline = absl::Seconds(20);
  run.Train(6);
  // b misses the deadline in fragment 1 only.
  run.Deliver("a", 0, 1);
  run.Deliver("a", 0, 2);
  run.Deliver("b", 0, 2);
  run.Fold(2);
  run.Pass(absl::Minutes(11), {"a", "b"});
  REQUIRE(run.of(1).folding.has_value());
  CHECK(run.of(1).folding->missing == Names{"b"});
  CHECK(run.of(1).windows.at("b").carried_tokens == 600);
  CHECK(run.of(2).windows.at("b").carried_tokens == 0);
  run.Fold(1);
  CHECK(run.of(1).open->leases.at("b").carried_tokens == 600);
}

TEST_CASE("recorded facts lead to the same state") {
  FragmentRun run;
  run.policy.eval_every = 1;
  run.policy.eval_windows = 4;
  run.policy.train_tokens = 2 * 100 * 15;
  run.Train(14);
  State replayed;
  for (const Fact& fact : run.facts) REQUIRE(Evolve(replayed, fact).ok());
  CHECK(replayed == run.state);
}

}  // namespace
}  // namespace diloco

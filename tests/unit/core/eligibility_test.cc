// Who takes part in a round: the deadline, who is skipped, leases in mid-round.
#include "coordinator/core/eligibility.h"

#include "tests/support/catch.h"
#include "tests/unit/core/core_run.h"

namespace diloco {
namespace {

TEST_CASE("C6.3 the automatic deadline follows the workers, not one of them") {
  const auto deadline = [](const std::vector<double>& finishes) {
    return absl::ToDoubleSeconds(AutoDeadlineOf(finishes).deadline);
  };
  // Up to three: 1.5 x the slowest.
  REQUIRE(deadline({}) == 600);
  REQUIRE(deadline({100}) == 150);
  REQUIRE(deadline({100, 20, 400}) == 600);
  REQUIRE(deadline({1, 2}) == 10);
  // From four on: median + 4 MAD, within 1.2 to 2 x the median.
  REQUIRE(deadline({100, 100, 100, 1000}) == 120);
  REQUIRE(deadline({90, 100, 110, 120}) == 145);  // 105 + 4 x 10
  REQUIRE(deadline({50, 100, 150, 200}) == 250);  // 125 + 4 x 50, cut
  REQUIRE(deadline({1, 1, 1, 1, 90}) == 10);
  REQUIRE(AutoDeadlineOf({1, 3.5}).reason ==
          "1.5 x the slowest predicted finish of 3.5 s, at least 10 s");
  REQUIRE(AutoDeadlineOf({90, 100, 110, 120}).reason ==
          "median predicted finish of 105 s + 4 MAD of 10 s, within 1.2 to 2 x "
          "the median");
}

TEST_CASE("C6.3 the automatic deadline leaves time for evaluations") {
  CoreRun run;
  run.policy.eval_every = 1;
  run.policy.eval_windows = 8;
  run.Join("a");
  run.Join("b");
  const auto beat = [&] {
    for (const char* name : {"a", "b"}) run.Do(BeatEvent{name, 2.0});
  };
  // 4 windows of 500 tokens each: as many tokens as in 20 steps.
  const auto report = [&](uint32_t slice) {
    run.Do(EvalReportEvent{run.state.eval->slices[slice].worker,
                           run.state.eval->version, slice, 4000, 2000});
  };
  const auto finish = [&] {
    run.Deliver("a");
    run.Deliver("b");
    run.Fold();
  };
  beat();
  SECTION("that are known") {
    report(0);
    report(1);
    finish();
    REQUIRE(run.open_round().deadline == absl::Seconds(60));
    REQUIRE(run.open_round().reason ==
            "2 workers, 10 steps each; deadline 60 s: 1.5 x the slowest "
            "predicted finish of 40 s, evaluation included");
    REQUIRE(run.open_round().late.empty());
    // Once they are through, the round ends so much earlier.
    beat();
    const absl::Duration before =
        TimeLeft(run.policy, run.state, run.soft, 0, run.now);
    report(0);
    report(1);
    REQUIRE(before - TimeLeft(run.policy, run.state, run.soft, 0, run.now) ==
            absl::Seconds(20));
  }
  SECTION("while none is complete") {
    report(0);
    finish();
    REQUIRE(run.open_round().deadline == absl::Minutes(10));
    REQUIRE(run.open_round().reason ==
            "2 workers, 10 steps each; deadline 600 s: 10 min while no "
            "evaluation is complete");
  }
  SECTION("and not where none is due") {
    run.policy.eval_every = 2;
    report(0);
    report(1);
    finish();
    REQUIRE(run.open_round().deadline == absl::Seconds(30));
  }
  SECTION("a deadline that was chosen is not divided") {
    run.policy.deadline = absl::Seconds(25);
    report(0);
    report(1);
    finish();
    REQUIRE(run.open_round().late.empty());
    REQUIRE(run.open_round().deadline == absl::Seconds(25));
  }
}

// Four workers of one speed but d; round 1 is folded.
struct FourWorkers {
  explicit FourWorkers(double step_of_d) : slow_step(step_of_d) {
    run.policy.wait_for = 4;
    for (const char* name : {"a", "b", "c", "d"}) run.Join(name);
    for (const char* name : {"a", "b", "c"}) Beat(name, 2.0, 10);
    Beat("d", step_of_d, 10);
    for (const char* name : {"a", "b", "c", "d"}) run.Deliver(name);
    run.Fold();
  }
  // Holds what the open round is based on, and `held` steps of its own.
  void Beat(const std::string& name, double step_seconds, uint32_t held) {
    BeatEvent beat{name, step_seconds, WindowReport{}};
    beat.window->round = run.round();
    beat.window->leased_steps = held;
    beat.window->steps = held;
    beat.window->tokens = 100 * held;
    beat.window->version = run.version();
    beat.window->digest = CoreRun::VersionDigest(run.version());
    run.Do(beat);
  }
  // A round of the three fast ones, while d makes `steps` more.
  void Round(uint32_t steps) {
    held += steps;
    run.now += absl::Seconds(20);
    for (const char* name : {"a", "b", "c"}) Beat(name, 2.0, 10);
    Beat("d", slow_step, held);
    for (const char* name : {"a", "b", "c"}) run.Deliver(name);
    run.Fold();
  }

  CoreRun run;
  uint32_t held = 0;
  const double slow_step;
};

TEST_CASE("C6.3 a round opens without a worker that is ten times slower") {
  FourWorkers four(20.0);
  CoreRun& run = four.run;
  const RoundOpened* opened = run.LastFact<RoundOpened>();
  REQUIRE(opened->round == 2);
  REQUIRE(opened->deadline == absl::Seconds(24));  // 1.2 x 20 s
  REQUIRE(opened->skipped ==
          std::vector<RoundOpened::Skipped>{
              {"d",
               "at 20 s a step it would finish its window in 200 s, after the "
               "deadline of 24 s"}});
  REQUIRE(opened->reason ==
          "3 workers, 10 steps each; deadline 24 s: median predicted finish of "
          "20 s + 4 MAD of 0 s, within 1.2 to 2 x the median; without d: at 20 "
          "s a step it would finish its window in 200 s, after the deadline of "
          "24 s");
  REQUIRE(run.open_round().reason == opened->reason);

  // It trains on, and nobody waits for it.
  const LeaseAdded* late = run.LastFact<LeaseAdded>();
  REQUIRE(late != nullptr);
  REQUIRE(late->lease.worker == "d");
  REQUIRE(late->lease.steps == 10);
  REQUIRE(late->lease.window_steps == 10);
  REQUIRE(late->lease.progress == run.open_round().leases.at("a").progress);
  REQUIRE(late->reason ==
          "goes on in its window, 10 of 10 steps left, 200 s at 20 s a step");
  REQUIRE(run.View("d").leases.size() == 1);
  for (const char* name : {"a", "b", "c"}) run.Deliver(name);
  REQUIRE(run.folding());
  REQUIRE(run.closed().missing.empty());
  REQUIRE(run.closed().reason ==
          "3 of 3 updates in; still in their windows: d");
}

TEST_CASE("a round that opens does not wait for a joiner's download") {
  FourWorkers four(2.0);
  CoreRun& run = four.run;
  const bool heard = GENERATE(false, true);
  CAPTURE(heard);
  JoinEvent joiner;
  joiner.worker = "e";
  joiner.attempt = "attempt e";
  joiner.new_session = "session e";
  joiner.fresh = true;
  REQUIRE(run.Do(joiner).status.ok());
  // No digest: it holds nothing, as before its first beat.
  if (heard) run.Do(BeatEvent{"e", 0, WindowReport{}});
  for (const char* name : {"a", "b", "c", "d"}) four.Beat(name, 2.0, 10);
  for (const char* name : {"a", "b", "c", "d"}) run.Deliver(name);
  run.Fold();
  const OpenRound& open = *run.state.fragments[0].open;
  REQUIRE(open.leases.count("e") == 0);
  REQUIRE(open.leases.size() == 4);
  // Alone it is waited for: nobody else could make a round.
  for (const char* name : {"a", "b", "c", "d"}) {
    run.Do(LeaveEvent{name, "test"});
  }
  REQUIRE(run.state.fragments[0].open->leases.count("e") == 1);
}

TEST_CASE("who has handed in holds theta, also before its first beat") {
  CoreRun run;
  run.policy.wait_for = 2;
  for (const char* name : {"a", "b"}) {
    JoinEvent joiner;
    joiner.worker = name;
    joiner.attempt = absl::StrCat("attempt ", name);
    joiner.new_session = absl::StrCat("session ", name);
    joiner.fresh = true;
    REQUIRE(run.Do(joiner).status.ok());
  }
  BeatEvent beat{"a", 1.0, WindowReport{}};
  beat.window->digest = CoreRun::VersionDigest(run.version());
  run.Do(beat);
  for (const char* name : {"a", "b"}) run.Deliver(name);
  run.Fold();
  REQUIRE(run.open_round().leases.size() == 2);
}

TEST_CASE("C6.3 a slow worker is folded when its window is full") {
  FourWorkers four(20.0);
  CoreRun& run = four.run;
  for (uint32_t left = 9; left >= 2; --left) {
    four.Round(1);
    INFO("left " << left);
    REQUIRE(run.open_round().leases.at("d").steps == left);
    REQUIRE(run.open_round().late.count("d") == 1);
  }
  // One step more is 20 s, within the deadline: the round waits for it.
  four.Round(1);
  const Lease last = run.open_round().leases.at("d");
  REQUIRE(run.open_round().late.count("d") == 0);
  REQUIRE(last.steps == 1);
  REQUIRE(last.window_steps == 10);
  REQUIRE(last.tokens >= 1000);  // All of its window counts.
  REQUIRE(last.tokens <= 2000);
  REQUIRE(run.LastFact<RoundOpened>()->reason.find(
              "4 workers, 10 steps each, d 1, the rest of its window") == 0);
  for (const char* name : {"a", "b", "c"}) run.Deliver(name);
  REQUIRE(run.open());
  run.Deliver("d", 1000);
  REQUIRE(MemberNames(run.closed()) == Names{"a", "b", "c", "d"});
  REQUIRE(run.closed().members[3].weight == 1000);

  // What it reported before it delivered is not in its window any more.
  run.Fold();
  REQUIRE(run.open_round().leases.at("d").steps == 10);
}

TEST_CASE("a slow worker trains on while another one is not measured") {
  FourWorkers four(20.0);
  CoreRun& run = four.run;
  run.Join("e");
  four.Beat("d", 20.0, 1);
  for (const char* name : {"a", "b", "c"}) run.Deliver(name);
  run.Fold();
  REQUIRE(run.open_round().leases.count("e") == 1);
  REQUIRE(run.open_round().deadline == absl::Minutes(10));
  REQUIRE(run.open_round().late.count("d") == 1);
  REQUIRE(run.open_round().leases.at("d").steps == 9);
}

TEST_CASE("in the last round a slow worker hands in what it has") {
  FourWorkers four(9.0);
  CoreRun& run = four.run;
  REQUIRE(run.open_round().late.count("d") == 1);
  four.Round(2);
  run.Do(StopEvent{run.round() + 1, "enough"});
  four.held += 2;
  four.Round(0);
  const Lease last = run.open_round().leases.at("d");
  REQUIRE(run.open_round().late.empty());
  REQUIRE(last.steps == 2);  // Of the 6 that its window lacks.
  REQUIRE(last.window_steps == 10);
}

TEST_CASE("a slow worker that is done in mid-round is folded then") {
  FourWorkers four(20.0);
  CoreRun& run = four.run;
  run.Deliver("a");
  REQUIRE(run.Deliver("d", 1000).status.ok());
  run.Deliver("b");
  run.Deliver("c");
  REQUIRE(MemberNames(run.closed()) == Names{"a", "b", "c", "d"});
  REQUIRE(run.closed().members[3].weight == 1000);
}

TEST_CASE("where too few would be left the round makes room for slow workers") {
  CoreRun run;
  run.policy.deadline = absl::Seconds(15);
  SECTION("a worker alone is never skipped") {
    run.policy.wait_for = 1;
    run.Join("a");
    run.Do(BeatEvent{"a", 20.0});
    run.Deliver("a");
    run.Fold();
    REQUIRE(run.open_round().leases.size() == 1);
    REQUIRE(run.open_round().late.empty());
  }
  SECTION("half of them stay, those nearest to the deadline") {
    run.policy.wait_for = 4;
    for (const char* name : {"a", "b", "c", "d"}) run.Join(name);
    run.Do(BeatEvent{"a", 20.0});
    run.Do(BeatEvent{"b", 2.0});
    run.Do(BeatEvent{"c", 3.0});
    run.Do(BeatEvent{"d", 4.0});
    SECTION("whatever min_updates is") {
      for (const char* name : {"a", "b", "c", "d"}) run.Deliver(name);
      run.Fold();
      REQUIRE(run.open_round().late == std::set<std::string>{"a", "d"});
    }
    SECTION("or as many as min_updates asks for") {
      run.policy.min_updates = 3;
      for (const char* name : {"a", "b", "c", "d"}) run.Deliver(name);
      run.Fold();
      REQUIRE(run.open_round().late == std::set<std::string>{"a"});
    }
  }
  SECTION("auto grows for them") {
    run.policy.deadline.reset();
    run.policy.wait_for = 4;
    run.policy.min_updates = 4;
    for (const char* name : {"a", "b", "c", "d"}) run.Join(name);
    for (const char* name : {"a", "b", "c"}) run.Do(BeatEvent{name, 2.0});
    run.Do(BeatEvent{"d", 20.0});
    for (const char* name : {"a", "b", "c", "d"}) run.Deliver(name);
    run.Fold();
    REQUIRE(run.open_round().late.empty());
    REQUIRE(run.open_round().deadline == absl::Seconds(300));
  }
}

TEST_CASE("under late: reject a slow worker gets the steps that fit") {
  CoreRun run;
  run.policy.late = LatePolicy::kReject;
  run.policy.deadline = absl::Milliseconds(90'500);
  run.Join("a");
  run.Join("b");
  run.Do(BeatEvent{"a", 5.0});
  run.Do(BeatEvent{"b", 20.0});
  run.Deliver("a");
  run.Deliver("b");
  run.Fold();
  REQUIRE(run.open_round().leases.at("a").steps == 10);
  REQUIRE(run.open_round().leases.at("b").steps == 2);  // 45 s / 20 s
  REQUIRE(run.open_round().reason ==
          "2 workers, 10 steps each, b 2, which fit; deadline 90.5 s: "
          "sync.deadline");
  REQUIRE(run.open_round().leases.at("b").tokens == 200);
  REQUIRE(run.open_round().late.empty());
}

TEST_CASE("C6.3 too few updates wait for late workers, too") {
  FourWorkers four(20.0);
  CoreRun& run = four.run;
  run.policy.min_updates = 3;
  run.Deliver("a");
  run.Deliver("b");
  run.Do(LeaveEvent{"c", "SIGTERM"});
  REQUIRE(run.open());
  run.Pass(absl::Seconds(12), {"a", "b", "d"});
  run.Pass(absl::Seconds(12), {"a", "b", "d"});
  REQUIRE(run.LastFact<RoundExtended>()->reason ==
          "deadline, 2 of 3 updates in, sync.min_updates is 3; waiting for d");
  run.Deliver("d");
  REQUIRE(MemberNames(run.closed()) == Names{"a", "b", "d"});
}

TEST_CASE("a joiner in mid-round gets the steps that fit, unwaited for") {
  FourWorkers four(2.0);
  CoreRun& run = four.run;
  // All take 20 s for the round. Its step was timed by its probe.
  run.now += absl::Seconds(8);
  for (const char* name : {"a", "b", "c", "d"}) four.Beat(name, 2.0, 4);
  run.Join("e");
  REQUIRE(run.open_round().leases.count("e") == 0);
  SECTION("once it holds the base version") {
    run.Do(BeatEvent{"e", 1.0, WindowReport{}});
    REQUIRE(run.open_round().leases.count("e") == 0);
    four.Beat("e", 1.0, 0);
    const LeaseAdded* late = run.LastFact<LeaseAdded>();
    REQUIRE(late != nullptr);
    REQUIRE(late->lease.worker == "e");
    REQUIRE(late->lease.steps == 10);  // 0.9 x 12 s, at most H
    REQUIRE(late->lease.tokens == 1000);
    REQUIRE(run.open_round().late.count("e") == 1);
    for (const char* name : {"a", "b", "c", "d"}) run.Deliver(name);
    REQUIRE(run.folding());  // Not waited for.
    run.Fold();
    REQUIRE(run.open_round().late.count("e") == 0);
    REQUIRE(run.open_round().leases.at("e").carried_tokens == 1000);
  }
  SECTION("fewer when there is less time") {
    four.Beat("e", 2.4, 0);
    REQUIRE(run.open_round().leases.at("e").steps == 4);  // 10.8 s / 2.4 s
    REQUIRE(run.open_round().leases.at("e").tokens == 400);
    run.Deliver("e");
    for (const char* name : {"a", "b", "c", "d"}) run.Deliver(name);
    REQUIRE(MemberNames(run.closed()) == Names{"a", "b", "c", "d", "e"});
    REQUIRE(run.closed().members[4].weight == 400);
  }
  SECTION("none when less than a quarter of the round is left") {
    run.now += absl::Seconds(8);
    for (const char* name : {"a", "b", "c", "d"}) four.Beat(name, 2.0, 8);
    four.Beat("e", 1.0, 0);
    REQUIRE(run.open_round().leases.count("e") == 0);
  }
  SECTION("none while the run is paused") {
    run.Do(PauseEvent{true, "maintenance"});
    four.Beat("e", 1.0, 0);
    REQUIRE(run.open_round().leases.count("e") == 0);
  }
}

TEST_CASE(
    "C6.3 a suspect worker enters the open round when it is heard again") {
  FourWorkers four(2.0);
  CoreRun& run = four.run;
  run.now += absl::Seconds(6);  // d is silent while the round ends.
  for (const char* name : {"a", "b", "c"}) four.Beat(name, 2.0, 10);
  for (const char* name : {"a", "b", "c"}) run.Deliver(name);
  run.Deliver("d");
  run.now += absl::Seconds(6);
  for (const char* name : {"a", "b", "c"}) four.Beat(name, 2.0, 10);
  run.Fold();
  REQUIRE(run.LastFact<RoundOpened>()->skipped ==
          std::vector<RoundOpened::Skipped>{{"d", "suspect: silent for 6 s"}});
  four.Beat("d", 2.0, 0);
  REQUIRE(run.open_round().late.count("d") == 1);
  REQUIRE(run.open_round().leases.at("d").steps == 9);  // 0.9 x 20 s / 2 s
}

TEST_CASE("leases after a restart: whole windows until beats come") {
  FourWorkers four(20.0);
  CoreRun& run = four.run;
  for (const char* name : {"a", "b", "c"}) run.Deliver(name);
  run.soft = StartSoft(run.state, run.now);
  run.Fold();
  REQUIRE(run.open_round().late.empty());
  REQUIRE(run.open_round().leases.at("d").steps == 10);
  REQUIRE(run.open_round().leases.at("d").tokens == 2000);  // 1000 carried
  REQUIRE(run.open_round().deadline == absl::Minutes(10));
}

}  // namespace
}  // namespace diloco

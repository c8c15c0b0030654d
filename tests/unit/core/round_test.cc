#include <cmath>

#include "tests/support/catch.h"
#include "tests/unit/core/core_run.h"

namespace diloco {
namespace {

TEST_CASE("round 1 opens when join.wait_for workers are there") {
  CoreRun run;
  run.Join("b");
  REQUIRE_FALSE(run.open());
  REQUIRE(run.View("b").phase == RunPhase::kWaiting);
  REQUIRE(run.View("b").notice == "waiting for workers: 1 of 2 ready");

  const Decision second = run.Join("a");
  REQUIRE(run.open());
  const RoundOpened* opened = run.LastFact<RoundOpened>();
  REQUIRE(opened->round == 1);
  REQUIRE(opened->base_version == 0);
  REQUIRE(opened->leases.size() == 2);
  REQUIRE(opened->leases[0].worker == "a");
  REQUIRE(opened->leases[1].worker == "b");
  REQUIRE(opened->leases[0].steps == 10);
  REQUIRE(opened->leases[0].tokens == 1000);
  REQUIRE(opened->deadline == absl::Minutes(10));
  REQUIRE(run.View("a").phase == RunPhase::kRunning);
  REQUIRE(run.View("a").leases.size() == 1);
}

TEST_CASE("a round closes when every update is in, and the next one opens") {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  run.now += absl::Seconds(3);
  REQUIRE(run.Deliver("b").status.ok());
  REQUIRE(run.open());
  REQUIRE(run.View("b").leases[0].delivered);
  REQUIRE_FALSE(run.View("a").leases[0].delivered);
  const Decision last = run.Deliver("a");
  REQUIRE(Has<UpdateCommitted>(last));
  REQUIRE(Has<RoundClosed>(last));
  REQUIRE(run.folding());
  REQUIRE(MemberNames(run.closed()) == Names{"a", "b"});
  REQUIRE(run.closed().missing.empty());
  REQUIRE(run.closed().duration == absl::Seconds(3));
  REQUIRE(run.closed().members[0].weight == 1000);

  const Decision fold = run.Fold();
  REQUIRE(Has<VersionPublished>(fold));
  REQUIRE(Has<RoundOpened>(fold));
  REQUIRE(run.version() == 1);
  REQUIRE(run.round() == 2);
  REQUIRE(run.state.folded_tokens == 2000);
  REQUIRE(run.LastFact<VersionPublished>()->folded_tokens == 2000);
  REQUIRE(run.state.workers.at("a").rounds_folded == 1);
  REQUIRE(run.state.workers.at("a").tokens_folded == 1000);
}

TEST_CASE("the loss of a round is the token-weighted mean of its members") {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  UpdateValue a = run.Value("a", 100);
  a.loss = 2.0;
  UpdateValue b = run.Value("b", 300);
  b.loss = 4.0;
  run.Do(run.Verified("a", a));
  run.Do(run.Verified("b", b));
  REQUIRE(run.closed().loss == 3.5);
}

TEST_CASE("C6.3 a lost worker is not waited for, and named in the record") {
  CoreRun run;
  run.policy.wait_for = 3;
  for (const char* name : {"a", "b", "c"}) run.Join(name);
  run.Deliver("a");
  run.Deliver("b");
  run.Pass(absl::Seconds(29), {"a", "b"});
  REQUIRE(run.open());
  REQUIRE(StandingOf(run.policy, run.state, run.soft, "c", run.now) ==
          std::string("suspect"));
  run.Pass(absl::Seconds(1), {"a", "b"});
  REQUIRE(run.folding());
  REQUIRE(MemberNames(run.closed()) == Names{"a", "b"});
  REQUIRE(run.closed().missing == Names{"c"});
  REQUIRE(run.closed().reason ==
          "2 of 3 updates in; missing: c (silent for 30 s)");
  REQUIRE(run.state.workers.at("c").membership == Membership::kLost);

  // It comes back and takes part again in the round that opens next.
  run.Do(BeatEvent{"c"});
  REQUIRE(run.LastFact<WorkerReturned>()->worker == "c");
  run.Fold();
  REQUIRE(run.open_round().leases.count("c") == 1);
}

TEST_CASE("C6.3 a stopped worker that still beats is cut off at the deadline") {
  CoreRun run;
  run.policy.deadline = absl::Seconds(60);
  run.Join("a");
  run.Join("b");
  run.Deliver("a");
  for (int i = 0; i < 59; ++i) run.Pass(absl::Seconds(1), {"a", "b"});
  REQUIRE(run.open());
  run.Pass(absl::Seconds(1), {"a", "b"});
  REQUIRE(run.folding());
  REQUIRE(MemberNames(run.closed()) == Names{"a"});
  REQUIRE(run.closed().missing == Names{"b"});
  REQUIRE(run.closed().duration == absl::Seconds(60));
}

TEST_CASE("a lost worker's update that still reaches its round counts") {
  CoreRun run;
  run.policy.wait_for = 3;
  for (const char* name : {"a", "b", "c"}) run.Join(name);
  run.Pass(absl::Seconds(30), {"a", "b"});
  REQUIRE(run.state.workers.at("c").membership == Membership::kLost);
  run.Deliver("c");
  REQUIRE(run.state.workers.at("c").membership == Membership::kActive);
  run.Deliver("a");
  run.Deliver("b");
  REQUIRE(MemberNames(run.closed()) == Names{"a", "b", "c"});
}

TEST_CASE("a worker that leaves after delivering still counts, evicted not") {
  CoreRun run;
  run.policy.wait_for = 3;
  for (const char* name : {"a", "b", "c"}) run.Join(name);
  run.Deliver("a");
  run.Deliver("b");
  REQUIRE(run.Do(LeaveEvent{"a", "SIGTERM"}).status.ok());
  REQUIRE(run.Do(EvictEvent{"b", "suspicious"}).status.ok());
  run.Deliver("c");
  REQUIRE(MemberNames(run.closed()) == Names{"a", "c"});
  REQUIRE(run.closed().missing == Names{"b"});
}

TEST_CASE("C6.4 a silent worker is neither zero nor its old value") {
  CoreRun run;
  run.policy.wait_for = 3;
  run.policy.deadline = absl::Seconds(20);
  for (const char* name : {"a", "b", "c"}) run.Join(name);
  run.Deliver("a", 600);
  run.Deliver("b", 400);
  run.Pass(absl::Seconds(20), {"a", "b", "c"});
  REQUIRE(MemberNames(run.closed()) == Names{"a", "b"});
  REQUIRE(run.closed().members[0].weight == 600);
  REQUIRE(run.closed().members[1].weight == 400);
}

TEST_CASE("C6.4 with nobody in time the round is extended, void or folded") {
  CoreRun run;
  run.policy.deadline = absl::Seconds(20);
  run.policy.min_updates = 2;
  run.Join("a");
  run.Join("b");
  run.Deliver("a");

  SECTION("extend: waits on, once per deadline, and says for whom") {
    run.Pass(absl::Seconds(20), {"a", "b"});
    REQUIRE(run.Count<RoundExtended>() == 1);
    REQUIRE(run.LastFact<RoundExtended>()->reason ==
            "deadline, 1 of 2 updates in, sync.min_updates is 2; waiting for "
            "b");
    run.Pass(absl::Seconds(19), {"a", "b"});
    REQUIRE(run.Count<RoundExtended>() == 1);
    run.Pass(absl::Seconds(1), {"a", "b"});
    REQUIRE(run.Count<RoundExtended>() == 2);
    REQUIRE(run.Count<RoundClosed>() == 0);
    run.Deliver("b");
    REQUIRE(MemberNames(run.closed()) == Names{"a", "b"});
    REQUIRE(run.closed().duration == absl::Seconds(40));
  }
  SECTION("fold: what there is") {
    run.policy.short_round = ShortRound::kFold;
    run.Pass(absl::Seconds(20), {"a", "b"});
    REQUIRE(MemberNames(run.closed()) == Names{"a"});
    REQUIRE(run.folding());
  }
  SECTION("void: theta and version stay, the next round opens") {
    run.policy.short_round = ShortRound::kVoid;
    run.Pass(absl::Seconds(20), {"a", "b"});
    REQUIRE(run.closed().members.empty());
    REQUIRE(run.closed().missing == Names{"a", "b"});
    REQUIRE_FALSE(run.folding());
    REQUIRE(run.version() == 0);
    REQUIRE(run.state.folded_tokens == 0);
    REQUIRE(run.round() == 2);
    REQUIRE(run.open_round().base_version == 0);
  }
}

TEST_CASE("C6.4 fold with nobody in time is void") {
  CoreRun run;
  run.policy.deadline = absl::Seconds(20);
  run.policy.short_round = ShortRound::kFold;
  run.Join("a");
  run.Join("b");
  run.Pass(absl::Seconds(20), {"a", "b"});
  REQUIRE(run.closed().members.empty());
  REQUIRE(run.version() == 0);
  REQUIRE(run.round() == 2);
}

TEST_CASE("C6.4 a round with nobody to wait for stands still, unextended") {
  CoreRun run;
  run.policy.deadline = absl::Seconds(20);
  run.Join("a");
  run.Join("b");
  run.Do(LeaveEvent{"a", "SIGTERM"});
  run.Do(LeaveEvent{"b", "SIGTERM"});
  const size_t facts = run.facts.size();
  for (int i = 0; i < 10; ++i) run.Pass(absl::Seconds(20));
  REQUIRE(run.facts.size() == facts);
  REQUIRE(run.open());
  // Whoever comes has a whole deadline before it.
  SECTION("one that has a lease") {
    run.Join("a");
    REQUIRE(run.LastFact<RoundExtended>()->reason ==
            "deadline, 0 of 2 updates in, sync.min_updates is 1; waiting for "
            "a");
    REQUIRE(run.View("a").leases[0].deadline_left == absl::Seconds(20));
  }
  SECTION("another one") {
    run.Join("c");
    REQUIRE(run.LastFact<RoundExtended>()->added.size() == 1);
    REQUIRE(run.View("c").leases[0].deadline_left == absl::Seconds(20));
  }
}

TEST_CASE("C6.3 a worker that is heard of at the deadline is not silent") {
  CoreRun run;
  run.policy.deadline = absl::Seconds(20);
  run.Join("a");
  run.Join("b");
  run.Deliver("a");
  run.Pass(absl::Seconds(19), {"a", "b"});
  run.Pass(absl::Seconds(1));
  REQUIRE(run.closed().reason ==
          "deadline, 1 of 2 updates in; missing: b (still at work)");
}

TEST_CASE("an extension gives leases to those who have none") {
  CoreRun run;
  run.policy.deadline = absl::Seconds(20);
  run.Join("a");
  run.Join("b");
  run.Join("c");
  REQUIRE(run.open_round().leases.count("c") == 0);
  run.Pass(absl::Seconds(19), {"a", "b", "c"});
  run.Pass(absl::Seconds(1), {"a", "b", "c"});
  REQUIRE(run.LastFact<RoundExtended>()->added.size() == 1);
  REQUIRE(run.LastFact<RoundExtended>()->added[0].worker == "c");
  REQUIRE(run.View("c").leases.size() == 1);
}

TEST_CASE("a round that nobody can finish is extended at once") {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  run.Join("c");
  run.Do(LeaveEvent{"a", "SIGTERM"});
  REQUIRE(run.Count<RoundExtended>() == 0);
  run.Do(LeaveEvent{"b", "SIGTERM"});
  REQUIRE(run.Count<RoundExtended>() == 1);
  REQUIRE(run.open_round().leases.count("c") == 1);
}

TEST_CASE("when every update was refused a new round opens") {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  run.Refuse("a");
  REQUIRE(run.round() == 1);
  run.Refuse("b");
  REQUIRE(run.closed().members.empty());
  REQUIRE(run.closed().reason ==
          "every update was refused; missing: a (refused) and b (refused)");
  REQUIRE(run.round() == 2);
  REQUIRE(run.open_round().leases.size() == 2);
}

TEST_CASE("too few updates and a refused worker do not hold the run for ever") {
  CoreRun run;
  run.policy.min_updates = 2;
  run.policy.deadline = absl::Seconds(20);
  run.Join("a");
  run.Join("b");
  run.Deliver("a");
  run.Refuse("b");
  REQUIRE(run.round() == 1);
  run.Pass(absl::Seconds(20), {"a", "b"});
  REQUIRE(run.round() == 2);
  REQUIRE(run.closed().missing == Names{"a", "b"});
}

TEST_CASE("the deadline follows the slowest measured worker") {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  run.Do(BeatEvent{"a", 1.0});
  run.Do(BeatEvent{"b", 3.0});
  UpdateVerifiedEvent b = run.Verified("b", run.Value("b"));
  b.upload_seconds = 2.0;
  run.Do(b);
  run.Deliver("a");
  run.Fold();
  REQUIRE(run.open_round().deadline == absl::Seconds(48));  // 1.5 (10 x 3 + 2)

  SECTION("but at least ten seconds") {
    run.Do(BeatEvent{"b", 0.001});
    run.Do(BeatEvent{"a", 0.001});
    run.Deliver("a");
    run.Deliver("b");
    run.Fold();
    REQUIRE(run.open_round().deadline == absl::Seconds(10));
  }
  SECTION("but a worker that is not measured yet gets its ten minutes") {
    run.Join("c");
    run.Deliver("a");
    run.Deliver("b");
    run.Fold();
    REQUIRE(run.open_round().leases.count("c") == 1);
    REQUIRE(run.open_round().deadline == absl::Minutes(10));
    SECTION("or more, when a measured one needs more") {
      run.Do(BeatEvent{"b", 100.0});
      for (const char* name : {"a", "b", "c"}) run.Deliver(name);
      run.Fold();
      REQUIRE(run.open_round().deadline == absl::Seconds(1503));
    }
  }
  SECTION("and mistaken measurements are ignored") {
    for (double bad : {-1.0, 0.0, 1e300, std::nan("")}) {
      run.Do(BeatEvent{"b", bad});
      REQUIRE(run.soft.workers["b"].step_seconds == 3.0);
    }
  }
}

TEST_CASE("steps are trimmed so that the run ends at train.tokens") {
  CoreRun run;
  run.policy.train_tokens = 2500;
  run.Join("a");
  run.Join("b");
  run.Deliver("a");
  run.Deliver("b");
  run.Fold();
  REQUIRE(run.open_round().leases.at("a").steps == 3);  // 500 left of 2 x 100
  run.Deliver("a");
  run.Deliver("b");
  const Decision last = run.Fold();
  REQUIRE(Has<RunFinished>(last));
  REQUIRE_FALSE(Has<RoundOpened>(last));
  REQUIRE(run.state.folded_tokens == 2600);
  REQUIRE(run.View("a").phase == RunPhase::kFinished);
}

TEST_CASE("the first rounds can have an interval of their own") {
  Policy policy;
  policy.interval = 25;
  policy.interval_first = 10;
  policy.rounds_first = 2;
  REQUIRE(IntervalOfRound(policy, 1) == 10);
  REQUIRE(IntervalOfRound(policy, 2) == 10);
  REQUIRE(IntervalOfRound(policy, 3) == 25);
}

TEST_CASE("progress crosses the round evenly and never goes back") {
  CoreRun run;
  run.policy.train_tokens = 20'000;
  run.policy.deadline = absl::Seconds(20);
  run.Join("a");
  run.Join("b");
  Lease first = run.open_round().leases.at("a");
  REQUIRE(first.progress == 0);
  REQUIRE(first.progress_step == Approx(0.01));  // 2000 / 20000 over 10 steps
  // b does not deliver: only half of the expected tokens are folded.
  run.Deliver("a");
  run.Pass(absl::Seconds(20), {"a", "b"});
  run.Fold();
  const Lease second = run.open_round().leases.at("a");
  REQUIRE(second.progress == Approx(0.1));
  // Round 2 is expected to end at (1000 + 1000 + 2000) / 20000 = 0.2.
  REQUIRE(second.progress + second.steps * second.progress_step == Approx(0.2));
}

TEST_CASE("what a void round discards or a screen refuses is not carried") {
  CoreRun run;
  run.policy.late = LatePolicy::kCarry;
  run.policy.deadline = absl::Seconds(20);
  run.Join("a");
  run.Join("b");
  SECTION("a refused update in a round that is folded") {
    run.Refuse("a");
    run.Deliver("b");
    run.Fold();
  }
  SECTION("every update refused") {
    run.Refuse("a");
    run.Refuse("b");
  }
  SECTION("delivered into a void round") {
    run.policy.min_updates = 2;
    run.policy.short_round = ShortRound::kVoid;
    run.Deliver("a");
    run.Pass(absl::Seconds(20), {"a"});
    run.Join("b");
  }
  REQUIRE(run.round() == 2);
  for (const auto& [name, lease] : run.open_round().leases) {
    INFO(name);
    REQUIRE(lease.carried_tokens == 0);
  }
}

TEST_CASE("a worker that missed a round brings its tokens along, under carry") {
  CoreRun run;
  run.policy.deadline = absl::Seconds(20);
  const bool carry = GENERATE(true, false);
  run.policy.late = carry ? LatePolicy::kCarry : LatePolicy::kReject;
  run.Join("a");
  run.Join("b");
  for (int i = 0; i < 2; ++i) {
    run.Deliver("a");
    run.Pass(absl::Seconds(20), {"a", "b"});
    run.Fold();
  }
  const Lease lease = run.open_round().leases.at("b");
  REQUIRE(lease.carried_tokens == (carry ? 2000 : 0));
  REQUIRE(lease.tokens == (carry ? 3000 : 1000));
  REQUIRE(run.open_round().leases.at("a").tokens == 1000);

  SECTION("once: a fold takes them over") {
    run.Deliver("a");
    run.Deliver("b");
    run.Fold();
    REQUIRE(run.open_round().leases.at("b").tokens == 1000);
  }
  SECTION("not when its window is gone") {
    JoinEvent event;
    event.worker = "b";
    event.attempt = "again";
    event.previous_session = run.SessionOf("b");
    event.new_session = "new";
    event.fresh = true;
    REQUIRE(run.Do(event).status.ok());
    REQUIRE(run.open_round().leases.at("b").tokens == 1000);
    BeatEvent beat{"b", 0, WindowReport{}};
    beat.window->version = run.version();
    beat.window->digest = CoreRun::VersionDigest(run.version());
    run.Do(beat);  // It has pulled theta.
    run.Deliver("a");
    run.Pass(absl::Seconds(20), {"a", "b"});
    run.Fold();
    REQUIRE(run.open_round().leases.at("b").tokens == (carry ? 2000 : 1000));
  }
}

TEST_CASE("weights are tokens clamped to the lease, or one each") {
  CoreRun run;
  SECTION("tokens") {
    run.Join("a");
    run.Join("b");
    run.Deliver("a", 1'000'000);
    run.Deliver("b", 10);
    REQUIRE(run.closed().members[0].weight == 1000);
    REQUIRE(run.closed().members[0].tokens == 1000);
    REQUIRE(run.closed().members[1].weight == 10);
  }
  SECTION("uniform") {
    run.policy.weighting = Weighting::kUniform;
    run.Join("a");
    run.Join("b");
    run.Deliver("a", 1'000'000);
    run.Deliver("b", 10);
    REQUIRE(run.closed().members[0].weight == 1);
    REQUIRE(run.closed().members[0].tokens == 1000);
    REQUIRE(run.closed().members[1].weight == 1);
  }
}

TEST_CASE("suspect, draining and lost workers get no lease, with the reason") {
  CoreRun run;
  run.policy.wait_for = 4;
  for (const char* name : {"a", "b", "c", "d"}) run.Join(name);
  for (const char* name : {"a", "b", "c"}) run.Deliver(name);
  run.Pass(absl::Seconds(30), {"a", "b", "c"});  // d is lost.
  run.Do(DrainEvent{"c"});
  run.now += absl::Seconds(6);
  run.Do(BeatEvent{"a"});
  run.Do(BeatEvent{"c"});
  run.Fold();
  const RoundOpened* opened = run.LastFact<RoundOpened>();
  REQUIRE(opened->leases.size() == 1);
  REQUIRE(opened->skipped ==
          std::vector<RoundOpened::Skipped>{{"b", "suspect: silent for 6 s"},
                                            {"c", "draining"},
                                            {"d", "lost"}});
}

TEST_CASE("when nobody is eligible the next round waits for somebody") {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  run.Deliver("a");
  run.Deliver("b");
  run.Pass(absl::Seconds(31));
  REQUIRE_FALSE(Has<RoundOpened>(run.Fold()));
  REQUIRE(run.View("a").notice ==
          "waiting for workers: none is ready, a is lost, b is lost");
  REQUIRE(Has<RoundOpened>(run.Do(BeatEvent{"b"})));
}

TEST_CASE("a fold that is not the pending one is refused") {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  FoldDoneEvent done;
  done.published.round = 1;
  done.published.version = 1;
  REQUIRE(run.Do(done).status.code() == absl::StatusCode::kFailedPrecondition);
  run.Deliver("a");
  run.Deliver("b");
  done.published.version = 2;
  REQUIRE(run.Do(done).status.code() == absl::StatusCode::kFailedPrecondition);
  done.published.version = 1;
  done.published.fragment = 7;
  REQUIRE(run.Do(done).status.code() == absl::StatusCode::kInvalidArgument);
  done.published.fragment = 0;
  REQUIRE(run.Do(done).status.ok());
  REQUIRE(run.Do(done).status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(run.version() == 1);
}

}  // namespace
}  // namespace diloco

// Screens: who is refused, with which figures, and what the round does then.
#include "coordinator/core/screen.h"

#include "absl/strings/match.h"
#include "tests/support/catch.h"
#include "tests/unit/core/core_run.h"

namespace diloco {
namespace {

// Workers "a" to ...; rounds of 10 steps at an inner rate of 1e-3.
CoreRun Screened(int workers) {
  CoreRun run;
  run.policy.wait_for = static_cast<uint32_t>(workers);
  run.policy.inner_lr = 1e-3;
  run.policy.screen_norm = 20;
  run.policy.screen_replay = true;
  run.policy.train_tokens = 10'000'000;
  for (int i = 0; i < workers; ++i) {
    run.Join(std::string(1, static_cast<char>('a' + i)));
  }
  return run;
}

Decision DeliverNorm(CoreRun& run, const std::string& worker, double norm,
                     double lr_sum = 0.01) {
  UpdateVerifiedEvent event = run.Verified(worker, run.Value(worker));
  event.value.lr_sum = lr_sum;
  event.norm = norm;
  return run.Do(event);
}

TEST_CASE("C6.7 x1000 is refused at the close, named with its figures") {
  CoreRun run = Screened(5);
  for (const char* name : {"a", "b", "c", "d"}) DeliverNorm(run, name, 0.5);
  REQUIRE(run.open());
  const Decision decision = DeliverNorm(run, "e", 500);
  const auto* refused = run.LastFact<UpdateRefused>();
  REQUIRE(refused != nullptr);
  CHECK(refused->worker == "e");
  CHECK(refused->screen == Screen::kNorm);
  CHECK(refused->figure == Approx(50'000));
  CHECK(refused->limit == Approx(1000));
  CHECK(absl::StrContains(refused->reason,
                          "is 5e+04, 1e+03 times the median 50 of the round's "
                          "5; screen.norm allows 20 times"));
  CHECK(MemberNames(run.closed()) == Names{"a", "b", "c", "d"});
  CHECK(run.closed().missing == Names{"e"});
  CHECK(run.closed().members[0].norm_per_lr == Approx(50));
  // In the log, in the round's record, to the worker, and for a repeated call.
  CHECK(absl::StrContains(decision.reason, refused->reason));
  CHECK(absl::StrContains(run.closed().reason, refused->reason));
  CHECK(absl::StrContains(run.View("e").notice, refused->reason));
  CHECK_FALSE(absl::StrContains(run.View("a").notice, refused->reason));
  const auto verdict = run.Judge("e", 1, [&] {
    UpdateValue value = run.Value("e");
    value.digest = refused->digest;
    return value;
  }());
  REQUIRE(verdict.ok());
  CHECK(verdict->kind == UploadVerdict::Kind::kRefused);
  CHECK(verdict->reason == refused->reason);
  // It takes part again, and is told until then.
  run.Fold();
  CHECK(absl::StrContains(run.View("e").notice, refused->reason));
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    DeliverNorm(run, name, 0.5);
  }
  CHECK(run.closed().members.size() == 5);
  CHECK_FALSE(absl::StrContains(run.View("e").notice, "was refused"));
}

TEST_CASE("what differs by the learning rate alone passes") {
  CoreRun run = Screened(4);
  for (const char* name : {"a", "b", "c"}) DeliverNorm(run, name, 0.005, 1e-4);
  DeliverNorm(run, "d", 0.5, 0.01);
  CHECK(run.closed().members.size() == 4);
  CHECK(run.Count<UpdateRefused>() == 0);
}

TEST_CASE("C6.7 a claimed learning rate counts up to what the lease allows") {
  CoreRun run = Screened(4);
  for (const char* name : {"a", "b", "c"}) DeliverNorm(run, name, 0.5);
  DeliverNorm(run, "d", 500, 1e9);
  CHECK(MemberNames(run.closed()) == Names{"a", "b", "c"});
  CHECK(run.LastFact<UpdateRefused>()->figure == Approx(50'000));
}

TEST_CASE("half of the workers cannot move the median") {
  CoreRun run = Screened(4);
  for (const char* name : {"a", "b"}) DeliverNorm(run, name, 0.5);
  for (const char* name : {"c", "d"}) DeliverNorm(run, name, 500);
  CHECK(MemberNames(run.closed()) == Names{"a", "b"});
}

TEST_CASE("a zero update passes and is no measure of the others") {
  CoreRun run = Screened(5);
  for (const char* name : {"a", "b", "c"}) DeliverNorm(run, name, 0);
  for (const char* name : {"d", "e"}) DeliverNorm(run, name, 0.5);
  CHECK(run.closed().members.size() == 5);
}

TEST_CASE("below four updates nobody is judged without a history") {
  CoreRun run = Screened(3);
  for (const char* name : {"a", "b"}) DeliverNorm(run, name, 0.5);
  DeliverNorm(run, "c", 500);
  CHECK(run.closed().members.size() == 3);
}

TEST_CASE("below four updates a worker is measured by its own ten rounds") {
  CoreRun run = Screened(2);
  const int rounds = GENERATE(9, 10);
  for (int i = 0; i < rounds; ++i) {
    DeliverNorm(run, "a", 0.5);
    DeliverNorm(run, "b", 50);
    run.Fold();
  }
  // Not by the other's.
  DeliverNorm(run, "b", 50);
  DeliverNorm(run, "a", 50);
  if (rounds == 9) {
    CHECK(run.closed().members.size() == 2);
    return;
  }
  CHECK(MemberNames(run.closed()) == Names{"b"});
  CHECK(absl::StrContains(run.LastFact<UpdateRefused>()->reason,
                          "100 times the median 50 of its last 10"));
  // A refused one is no history.
  run.Fold();
  CHECK(run.state.fragments[0].norm_history.at("a").size() == 10);
  CHECK(run.state.fragments[0].norm_history.at("b").size() == 11);
}

TEST_CASE("a history keeps its newest 16 rounds") {
  CoreRun run = Screened(1);
  for (int i = 1; i <= 20; ++i) {
    DeliverNorm(run, "a", 0.01 * i);
    run.Fold();
  }
  const auto& history = run.state.fragments[0].norm_history.at("a");
  REQUIRE(history.size() == 16);
  CHECK(history.front() == Approx(5));
  CHECK(history.back() == Approx(20));
}

TEST_CASE("the quorum is judged again after the screens") {
  CoreRun run = Screened(4);
  run.policy.min_updates = 4;
  run.policy.deadline = absl::Seconds(20);
  for (const char* name : {"a", "b", "c"}) DeliverNorm(run, name, 0.5);
  DeliverNorm(run, "d", 500);
  // Three are too few: the round waits for others.
  REQUIRE(run.open());
  CHECK(run.open_round().committed.size() == 3);
  CHECK(run.open_round().refused.count("d") == 1);
  CHECK(absl::StrContains(run.View("d").notice, "screen.norm"));
  run.policy.min_updates = 3;
  run.Tick();
  CHECK(MemberNames(run.closed()) == Names{"a", "b", "c"});
}

TEST_CASE("screens can be switched off") {
  CoreRun run = Screened(5);
  run.policy.screen_norm = 0;
  run.policy.screen_replay = false;
  for (const char* name : {"a", "b", "c", "d"}) DeliverNorm(run, name, 0.5);
  DeliverNorm(run, "e", 500);
  CHECK(run.closed().members.size() == 5);
}

TEST_CASE("C6.7 an update that comes again is refused and named") {
  CoreRun run = Screened(2);
  const UpdateValue first = run.Value("a");
  DeliverNorm(run, "a", 0.5);
  DeliverNorm(run, "b", 0.5);
  run.Fold();
  const auto replay = [&](const std::string& worker) {
    UpdateVerifiedEvent event = run.Verified(worker, run.Value(worker));
    event.value.digest = first.digest;
    event.norm = 0.5;
    return run.Do(event);
  };
  SECTION("from its own worker") {
    REQUIRE(replay("a").status.ok());
    const auto* refused = run.LastFact<UpdateRefused>();
    REQUIRE(refused != nullptr);
    CHECK(refused->screen == Screen::kReplay);
    CHECK(absl::StrContains(refused->reason,
                            "that the same worker sent in round 1"));
    CHECK((*DecidedUpload(run.state, "a", 0, 2, first.digest))->kind ==
          UploadVerdict::Kind::kRefused);
    DeliverNorm(run, "b", 0.5);
    CHECK(MemberNames(run.closed()) == Names{"b"});
  }
  SECTION("from another") {
    REQUIRE(replay("b").status.ok());
    CHECK(absl::StrContains(run.LastFact<UpdateRefused>()->reason,
                            "that a sent in round 1"));
  }
  SECTION("rounds later") {
    for (int i = 0; i < 12; ++i) {
      DeliverNorm(run, "a", 0.5);
      DeliverNorm(run, "b", 0.5);
      run.Fold();
    }
    replay("a");
    CHECK(run.Count<UpdateRefused>() == 1);
  }
}

TEST_CASE("C6.7 a copy within the round is refused, the original counts") {
  CoreRun run = Screened(2);
  DeliverNorm(run, "a", 0.5);
  UpdateVerifiedEvent copy = run.Verified("b", run.Value("a"));
  copy.norm = 0.5;
  run.Do(copy);
  CHECK(MemberNames(run.closed()) == Names{"a"});
  CHECK(absl::StrContains(run.LastFact<UpdateRefused>()->reason,
                          "that a sent in round 1"));
}

TEST_CASE("a zero update has nothing to repeat") {
  CoreRun run = Screened(2);
  for (const char* name : {"a", "b"}) {
    UpdateVerifiedEvent zero = run.Verified(name, run.Value("a"));
    run.Do(zero);
  }
  CHECK(run.closed().members.size() == 2);
}

TEST_CASE("what screens compare with does not grow") {
  CoreRun run = Screened(1);
  for (size_t i = 0; i < kSeenUpdates + 5; ++i) {
    DeliverNorm(run, "a", 0.5);
    run.Fold();
  }
  CHECK(run.state.fragments[0].seen.size() == kSeenUpdates);
  CHECK(run.state.fragments[0].seen.back().round == kSeenUpdates + 5);
}

}  // namespace
}  // namespace diloco

// Settings that change in mid-run, as the pure core sees them.
#include "tests/support/catch.h"
#include "tests/unit/core/core_run.h"

namespace diloco {
namespace {

using Code = absl::StatusCode;

SettingsEvent Set(const CoreRun& run, const std::string& key,
                  const std::string& after, uint64_t train_tokens = 100'000) {
  SettingsEvent event;
  event.base_revision = run.state.settings.revision;
  event.changes = {{key, "before", after, false}};
  event.train_tokens = train_tokens;
  event.settings_digest = Sha256(after);
  event.by = "ann@desk";
  return event;
}

void CloseRound(CoreRun& run) {
  run.Deliver("a");
  run.Deliver("b");
  run.Fold();
}

TEST_CASE("a change waits for the open round to close, and not longer") {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  REQUIRE(run.open());
  REQUIRE(run.Do(Set(run, "sync.interval", "20")).status.ok());
  const SettingsState& settings = run.state.settings;
  REQUIRE(run.LastFact<SettingsChanged>()->from_round == 2);
  REQUIRE(settings.revision == 1);
  REQUIRE(settings.accepted.at("sync.interval") == "20");
  REQUIRE(settings.in_force.empty());
  REQUIRE(settings.applied == 0);
  run.Deliver("a");
  REQUIRE(settings.in_force.empty());
  run.Deliver("b");
  REQUIRE(run.folding());
  REQUIRE(settings.in_force.at("sync.interval") == "20");
  REQUIRE(settings.applied == 1);
  CloseRound(run);
  REQUIRE(settings.applied == 1);
}

TEST_CASE("between rounds a change is in force at once") {
  CoreRun run;
  run.Join("a");
  REQUIRE_FALSE(run.open());
  REQUIRE(run.Do(Set(run, "sync.interval", "20")).status.ok());
  REQUIRE(run.state.settings.in_force.at("sync.interval") == "20");
}

TEST_CASE("what only judges what comes next counts within the round") {
  CoreRun run;
  run.policy.min_updates = 2;
  run.policy.deadline = absl::Seconds(20);
  run.Join("a");
  run.Join("b");
  run.Deliver("a");
  run.Pass(absl::Seconds(20), {"a", "b"});
  REQUIRE(run.open());  // Waits for the second update.
  SettingsEvent event = Set(run, "sync.min_updates", "1");
  event.changes[0].at_once = true;
  event.changes.push_back({"sync.interval", "10", "20", false});
  REQUIRE(run.Do(event).status.ok());
  REQUIRE(run.state.settings.in_force.at("sync.min_updates") == "1");
  REQUIRE(run.state.settings.in_force.count("sync.interval") == 0);
  run.policy.min_updates = 1;
  run.Pass(absl::Seconds(20), {"a", "b"});
  REQUIRE(run.folding());
  REQUIRE(run.state.settings.in_force.at("sync.interval") == "20");
}

TEST_CASE("no round opens under the policy of the one before it") {
  CoreRun run;
  run.policy.short_round = ShortRound::kVoid;
  run.policy.deadline = absl::Seconds(20);
  run.Join("a");
  run.Join("b");
  run.Do(Set(run, "sync.interval", "20"));
  run.now += absl::Seconds(20);
  run.Do(BeatEvent{"a"});
  // The void round and the one after it would be one decision.
  REQUIRE(run.closed().members.empty());
  REQUIRE_FALSE(run.open());
  run.policy.interval = 20;
  run.Do(BeatEvent{"b"});
  run.Tick();
  REQUIRE(run.open());
  REQUIRE(run.open_round().leases.at("a").steps == 20);
}

TEST_CASE("a larger train.tokens makes a finished run go on") {
  CoreRun run;
  run.policy.train_tokens = 2000;
  run.Join("a");
  run.Join("b");
  CloseRound(run);
  REQUIRE(run.state.finished);
  const absl::Status other =
      run.Do(Set(run, "train.optimizer.lr", "0.1")).status;
  REQUIRE(other.code() == Code::kFailedPrecondition);
  REQUIRE(run.Do(Set(run, "train.tokens", "2000", 2000)).status.code() ==
          Code::kFailedPrecondition);
  REQUIRE(run.Do(Set(run, "train.tokens", "8000", 8000)).status.ok());
  REQUIRE(run.LastFact<SettingsChanged>()->reopens);
  REQUIRE_FALSE(run.state.finished);
  run.policy.train_tokens = 8000;
  run.Join("late");
  run.Tick();
  REQUIRE(run.open());
  // The schedule stands where it was, for whoever trains.
  for (const auto& [name, lease] : run.open_round().leases) {
    INFO(name);
    REQUIRE(lease.progress == 1.0);
    REQUIRE(lease.progress_step == 0.0);
  }
}

TEST_CASE("a run cannot be made shorter than what is folded") {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  CloseRound(run);
  const absl::Status refused =
      run.Do(Set(run, "train.tokens", "2000", 2000)).status;
  REQUIRE(refused.code() == Code::kFailedPrecondition);
  REQUIRE(refused.message().find("2000 that are folded") != std::string::npos);
}

TEST_CASE("progress does not go back when the run gets longer") {
  CoreRun run;
  run.policy.train_tokens = 10'000;
  run.Join("a");
  run.Join("b");
  CloseRound(run);
  run.Do(Set(run, "train.tokens", "40000", 40'000));
  run.policy.train_tokens = 40'000;
  CloseRound(run);
  // Two rounds of 2000 under 10000 lead to 0.4; 40000 has 0.1 there.
  const Lease& lease = run.open_round().leases.at("a");
  REQUIRE(lease.progress == Approx(0.4));
  REQUIRE(lease.progress_step == 0.0);
}

TEST_CASE("two changes at the same time: the second is told to look again") {
  CoreRun run;
  const SettingsEvent first = Set(run, "sync.interval", "20");
  const SettingsEvent second = Set(run, "sync.interval", "30");
  REQUIRE(run.Do(first).status.ok());
  REQUIRE(run.Do(second).status.code() == Code::kAborted);
  REQUIRE(run.state.settings.accepted.at("sync.interval") == "20");
}

TEST_CASE("an impossible change is no fact") {
  CoreRun run;
  run.Do(Set(run, "sync.interval", "20"));
  const State before = run.state;
  SettingsChanged fact = *run.LastFact<SettingsChanged>();
  REQUIRE_FALSE(Evolve(run.state, fact).ok());  // The same revision again.
  fact.revision = 2;
  REQUIRE_FALSE(Evolve(run.state, fact).ok());  // It is no longer "before".
  fact.changes[0].before = "20";
  fact.reopens = true;
  REQUIRE_FALSE(Evolve(run.state, fact).ok());  // It has not finished.
  REQUIRE(run.state == before);
}

}  // namespace
}  // namespace diloco

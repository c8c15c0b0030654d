#include "coordinator/core/state.h"
#include "tests/support/catch.h"
#include "tests/unit/core/core_run.h"

namespace diloco {
namespace {

RoundOpened Opened(uint64_t round, uint64_t base,
                   std::vector<std::string> workers) {
  RoundOpened opened;
  opened.round = round;
  opened.base_version = base;
  for (const std::string& worker : workers) {
    Lease& lease = opened.leases.emplace_back();
    lease.worker = worker;
    lease.steps = 1;
    lease.tokens = 1;
  }
  return opened;
}

TEST_CASE("impossible facts are refused and leave the state as it was") {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  run.Deliver("a");
  const State before = run.state;

  RoundClosed stranger;
  stranger.round = 1;
  stranger.members = {{"b", 1, Digest{}, 1}};
  RoundClosed unordered;
  unordered.round = 1;
  const Digest digest = run.open_round().committed.at("a").value.digest;
  unordered.members = {{"a", 1, digest, 1}, {"a", 1, digest, 1}};
  RoundClosed weightless;
  weightless.round = 1;
  weightless.members = {{"a", 0, digest, 1}};
  RoundExtended twice;
  twice.round = 1;
  twice.added = Opened(1, 0, {"a"}).leases;
  VersionPublished early;
  early.round = 1;
  early.version = 1;
  UpdateCommitted again;
  again.round = 1;
  again.worker = "a";
  UpdateRefused elsewhere;
  elsewhere.fragment = 3;

  const std::vector<Fact> impossible = {
      RunCreated{},
      EpochStarted{1, "nonce"},
      WorkerJoined{},
      WorkerReturned{"a"},
      WorkerReturned{"x"},
      WorkerDeparted{"x", Departure::kLost, ""},
      WorkerDeparted{"a", static_cast<Departure>(99), ""},
      DrainRequested{"x"},
      Opened(2, 0, {"a"}),
      Opened(1, 0, {"a"}),
      twice,
      again,
      elsewhere,
      stranger,
      unordered,
      weightless,
      early,
      EvalReassigned{},
      EvalReported{},
      EvalAbandoned{},
      EvalOpened{}};
  for (size_t i = 0; i < impossible.size(); ++i) {
    INFO("fact " << i);
    const absl::Status status = Evolve(run.state, impossible[i]);
    REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
    REQUIRE(run.state == before);
  }
}

TEST_CASE("a round on another base or for an unknown worker is impossible") {
  State state;
  RunCreated created;
  created.run = "r";
  created.fragments.resize(1);
  REQUIRE(Evolve(state, created).ok());
  REQUIRE_FALSE(Evolve(state, created).ok());
  REQUIRE_FALSE(Evolve(state, Opened(1, 1, {})).ok());
  REQUIRE_FALSE(Evolve(state, Opened(0, 0, {})).ok());
  REQUIRE_FALSE(Evolve(state, Opened(1, 0, {"x"})).ok());
}

TEST_CASE("the revision grows with every fact") {
  CoreRun run;
  const uint64_t before = run.state.revision;
  run.Join("a");
  REQUIRE(run.state.revision == before + 1);
}

}  // namespace
}  // namespace diloco

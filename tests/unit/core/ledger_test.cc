#include "coordinator/core/ledger.h"

#include "tests/support/catch.h"
#include "tests/unit/core/core_run.h"

namespace diloco {
namespace {

Ledger LedgerOf(const CoreRun& run) {
  Ledger ledger;
  for (const Fact& fact : run.facts) ledger.Add(fact);
  return ledger;
}

LedgerBalance BalanceOf(const CoreRun& run, uint32_t fragment = 0) {
  return LedgerOf(run).Balance(fragment, run.state.fragments[fragment]);
}

// An update of the worker's data up to `end`.
void Deliver(CoreRun& run, const std::string& name, uint64_t tokens,
             uint64_t end) {
  UpdateValue value = run.Value(name, tokens);
  value.data_end = end;
  run.Do(run.Verified(name, value));
}

CoreRun WithTwo() {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  return run;
}

uint64_t Of(const LedgerBalance& balance, WindowFate fate) {
  return balance.tokens.at(fate);
}

TEST_CASE("the ledger lists what was folded by range, and closes") {
  CoreRun run = WithTwo();
  Deliver(run, "a", 1000, 1000);
  CHECK(Of(BalanceOf(run), WindowFate::kPending) == 1000);
  CHECK(BalanceOf(run).closes());
  Deliver(run, "b", 900, 900);
  CHECK(Of(BalanceOf(run), WindowFate::kPending) == 1900);  // Being folded.
  CHECK(BalanceOf(run).closes());
  run.Fold();
  const LedgerBalance balance = BalanceOf(run);
  CHECK(Of(balance, WindowFate::kFolded) == 1900);
  CHECK(balance.reached == 1900);
  CHECK(balance.closes());
  const Ledger ledger = LedgerOf(run);
  REQUIRE(ledger.windows().size() == 2);
  const LedgerWindow& window = ledger.windows()[1];
  CHECK(window.worker == "b");
  CHECK(window.round == 1);
  CHECK(window.first == 0);
  CHECK(window.end == 900);
  CHECK(window.counted == 900);
}

TEST_CASE("what was never handed in is overwritten, and lost with a disk") {
  CoreRun run = WithTwo();
  Deliver(run, "a", 1000, 1000);
  Deliver(run, "b", 1000, 1000);
  run.Fold();
  Deliver(run, "a", 1000, 2300);  // 300 tokens trained and not sent.
  run.Join("b", run.SessionOf("b"));
  JoinEvent fresh;
  fresh.worker = "b";
  fresh.attempt = "fresh";
  fresh.new_session = "fresh session";
  fresh.fresh = true;
  fresh.take_over = true;
  run.Do(fresh);
  Deliver(run, "b", 1000, 2200);
  run.Fold();
  const LedgerBalance balance = BalanceOf(run);
  CHECK(Of(balance, WindowFate::kOverwritten) == 300);
  CHECK(Of(balance, WindowFate::kLost) == 200);
  CHECK(Of(balance, WindowFate::kFolded) == 4000);
  CHECK(balance.reached == 4500);
  CHECK(balance.again == 0);
  CHECK(balance.closes());
}

TEST_CASE("a refused update is discarded once its worker's next one comes") {
  CoreRun run = WithTwo();
  run.Refuse("a");
  Deliver(run, "b", 1000, 1000);
  run.Fold();
  Deliver(run, "a", 1000, 2000);
  const Ledger ledger = LedgerOf(run);
  const LedgerBalance balance = BalanceOf(run);
  CHECK(Of(balance, WindowFate::kDiscarded) == 1000);
  CHECK(balance.closes());
  REQUIRE(ledger.windows().size() == 3);
  CHECK(ledger.windows()[1].reason == "element 7 is nan");
}

TEST_CASE("a worker that goes back has data again in its next window") {
  CoreRun run = WithTwo();
  Deliver(run, "a", 1000, 1000);
  Deliver(run, "b", 1000, 1000);
  run.Fold();
  Deliver(run, "a", 1000, 1800);
  const LedgerBalance balance = BalanceOf(run);
  CHECK(balance.again == 200);
  CHECK(balance.reached == 2800);
  CHECK(balance.closes());
}

TEST_CASE("a lineage that goes back discards what it undoes") {
  CoreRun run = WithTwo();
  for (uint64_t round = 1; round <= 2; ++round) {
    Deliver(run, "a", 1000, 1000 * round);
    Deliver(run, "b", 1000, 1000 * round);
    run.Fold();
  }
  Deliver(run, "a", 1000, 3000);
  LineageStarted back;
  back.lineage = std::string(16, 'm');
  back.fragments = {{1, CoreRun::VersionDigest(1), {}, {}, 2000}};
  back.folded_tokens = 2000;
  Ledger ledger = LedgerOf(run);
  ledger.Add(back);
  REQUIRE(Evolve(run.state, back).ok());
  const LedgerBalance balance = ledger.Balance(0, run.state.fragments[0]);
  CHECK(Of(balance, WindowFate::kFolded) == 2000);
  CHECK(Of(balance, WindowFate::kDiscarded) == 3000);
  CHECK(balance.closes());
}

TEST_CASE(
    "a ledger whose windows are not the tokens of the run does not close") {
  CoreRun run = WithTwo();
  Deliver(run, "a", 1000, 1000);
  Deliver(run, "b", 1000, 1000);
  run.Fold();
  FragmentState fragment = run.state.fragments[0];
  fragment.folded_tokens += 7;
  CHECK(LedgerOf(run).Balance(0, fragment).uncounted == -7);
  CHECK_FALSE(LedgerOf(run).Balance(0, fragment).closes());
  Ledger forgetful;
  for (const Fact& fact : run.facts) {
    if (!std::holds_alternative<VersionPublished>(fact)) forgetful.Add(fact);
  }
  CHECK(forgetful.Balance(0, run.state.fragments[0]).unexplained == 2000);
}

TEST_CASE("the state knows how far a worker's updates have reached") {
  CoreRun run = WithTwo();
  Deliver(run, "a", 1000, 1000);
  Deliver(run, "b", 1000, 1500);
  run.Fold();
  Deliver(run, "b", 1000, 2600);
  CHECK(run.state.workers.at("a").data_end == 1000);
  CHECK(run.state.workers.at("b").data_end == 2600);
}

}  // namespace
}  // namespace diloco

// Updates that do not count: what the worker does with its local values then.

#include <algorithm>

#include "tests/component/agent/agent_run.h"

namespace diloco {
namespace {

TEST_CASE("C6.6 a refused worker goes on from the anchor") {
  // An update of the only worker that overflows fp16.
  Fixture fixture(1);
  fixture.StartCoordinator();
  Worker worker(fixture, 0);
  std::vector<uint32_t> takes;
  worker.prepare = [&](FakeTrainer& trainer) {
    trainer.LogTakes(&takes);
    trainer.SpikeAtStep(3, 1e6f);
  };
  worker.Start();
  worker.Join();
  INFO(worker.status.ToString());
  REQUIRE(worker.status.ok());
  const StatusReport status = fixture.Status();
  REQUIRE(status.phase == RunPhase::kFinished);
  REQUIRE(status.workers[0].rounds_folded == 6);
  REQUIRE(status.folded_tokens == fixture.settings.train.tokens);
  // The refused window and the six that count, all of H steps.
  REQUIRE(takes == std::vector<uint32_t>(7, 5));
  for (const UpdateOffer& offer : worker.port.offers()) {
    REQUIRE(offer.steps == 5);
    REQUIRE(offer.tokens == 40);
  }
}

TEST_CASE("C6.4 what a void round discards is not sent again") {
  ManualClock clock;
  Fixture fixture(2);
  fixture.clock = &clock;
  fixture.policy.min_updates = 2;
  fixture.policy.short_round = ShortRound::kVoid;
  fixture.policy.deadline = absl::Seconds(1);
  fixture.StartCoordinator();
  Worker heard(fixture, 0), slow(fixture, 1);
  std::vector<uint32_t> takes;
  heard.prepare = [&](FakeTrainer& trainer) { trainer.LogTakes(&takes); };
  slow.port.set_uploads_cut(true);
  heard.Start();
  slow.Start();
  fixture.Await([&] { return !slow.port.offers().empty(); });
  for (int round = 1; round <= 2; ++round) {
    fixture.Await([&] { return fixture.UpdatesAre("accepted", round); });
    clock.Advance(absl::Seconds(1));
  }
  fixture.Await([&] { return fixture.Status().fragments[0].open_round == 3; });
  REQUIRE(fixture.Status().fragments[0].version == 0);
  slow.port.set_uploads_cut(false);
  fixture.AwaitVersion(2);
  heard.stop = true;
  slow.stop = true;
  heard.Join();
  slow.Join();
  // Delivered into rounds that were void: each window starts from the anchor.
  REQUIRE(takes.size() >= 4);
  REQUIRE(std::count(takes.begin(), takes.end(), 5u) ==
          static_cast<int64_t>(takes.size()));
  for (const UpdateOffer& offer : heard.port.offers()) {
    REQUIRE(offer.steps == 5);
  }
  // Never delivered: carried on, and counted with all its steps.
  const std::vector<UpdateOffer> offers = slow.port.offers();
  REQUIRE(
      std::any_of(offers.begin(), offers.end(),
                  [](const UpdateOffer& offer) { return offer.steps == 10; }));
  for (const UpdateOffer& offer : offers) {
    REQUIRE(offer.tokens == offer.steps * 8);
  }
}

}  // namespace
}  // namespace diloco

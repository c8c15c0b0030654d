// What workers tell for the screens, and whole runs with screens on.
#include <future>

#include "tests/component/agent/agent_run.h"

namespace diloco {
namespace {

std::vector<Fact> TakenFacts(Fixture& fixture) {
  std::promise<std::vector<Fact>> taken;
  fixture.slot.Get()->GetEvents(
      0, absl::ZeroDuration(), [&](absl::StatusOr<EventsOutcome> events) {
        std::vector<Fact> facts;
        if (events.ok()) {
          for (const EventReport& event : events->events) {
            facts.push_back(event.fact);
          }
        }
        taken.set_value(std::move(facts));
      });
  return taken.get_future().get();
}

TEST_CASE("an update tells the learning rates that its steps added up") {
  Fixture fixture(2);
  fixture.policy.inner_lr = fixture.settings.train.lr;
  fixture.policy.screen_norm = 20;
  fixture.policy.screen_replay = true;
  RunToEnd(fixture, 2);
  int updates = 0;
  for (const Fact& fact : TakenFacts(fixture)) {
    if (const auto* refused = std::get_if<UpdateRefused>(&fact)) {
      FAIL_CHECK(refused->reason);
    }
    const auto* update = std::get_if<UpdateCommitted>(&fact);
    if (update == nullptr) continue;
    ++updates;
    REQUIRE(update->value.steps == 5);
    CHECK(update->value.lr_sum == Approx(5 * 0.05));
  }
  CHECK(updates == 12);
}

}  // namespace
}  // namespace diloco

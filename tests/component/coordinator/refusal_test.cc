// Updates that can never be used, through the whole coordinator.
#include <limits>

#include "absl/strings/match.h"
#include "tests/component/coordinator/test_run.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

TEST_CASE(
    "C6.6 a value that a fold cannot take is refused and the run goes on") {
  for (float bad : {1e38f, -std::numeric_limits<float>::infinity(),
                    std::numeric_limits<float>::quiet_NaN()}) {
    INFO("value " << bad);
    TestRun run(2);
    REQUIRE(run.Start().ok());
    run.JoinAll();
    const LeaseView lease = run.View("b")->view.leases[0];
    std::vector<float> values = run.Values("b", lease.round, 1);
    values[512 + 17] = bad;
    const TestUpdate update = run.UpdateOf(lease, values);
    const auto outcome = run.Deliver("b", update);
    REQUIRE(outcome.ok());
    CHECK(outcome->kind == UploadVerdict::Kind::kRefused);
    INFO(outcome->reason);
    CHECK(absl::StrContains(outcome->reason, "b.norm[17]"));
    CHECK(absl::StrContains(outcome->reason, "element 529 of fragment 0"));
    // Evidence is kept, and the verdict stays.
    CHECK(run.FilesWith(".refused").size() == 1);
    CHECK(run.Deliver("b", update)->kind == UploadVerdict::Kind::kRefused);
    CHECK(absl::StrContains(
        run.metrics->Text(),
        "diloco_coordinator_updates_total{result=\"refused\"} 1"));

    REQUIRE(run.Deliver("a", run.NextUpdate("a"))->kind ==
            UploadVerdict::Kind::kAccepted);
    REQUIRE(run.AwaitVersion(1).ok());
    CHECK(run.fatal().ok());
    const Digest alone = run.digest();
    run.DeliverAll();
    REQUIRE(run.AwaitVersion(2).ok());
    run.End();
    REQUIRE(run.Start().ok());
    CHECK(run.Status().fragments[0].version == 2);

    // As if only "a" had been in that round.
    TestRun other(1);
    REQUIRE(other.Start().ok());
    other.JoinAll();
    other.DeliverAll();
    REQUIRE(other.AwaitVersion(1).ok());
    CHECK(other.digest() == alone);
  }
}

TEST_CASE("C6.6 the largest value that is accepted can be folded") {
  TestRun run(2);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  for (int version = 1; version <= 3; ++version) {
    for (const std::string worker : {"a", "b"}) {
      const LeaseView lease = run.View(worker)->view.leases[0];
      const std::vector<float> values(run.options.layout.elements, 0x1p96f);
      REQUIRE(run.Deliver(worker, run.UpdateOf(lease, values))->kind ==
              UploadVerdict::Kind::kAccepted);
    }
    REQUIRE(run.AwaitVersion(version).ok());
  }
  CHECK(run.fatal().ok());
}

}  // namespace
}  // namespace diloco

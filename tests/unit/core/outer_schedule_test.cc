#include "coordinator/core/outer_schedule.h"

#include "tests/support/catch.h"
#include "tests/unit/core/core_run.h"

namespace diloco {
namespace {

TEST_CASE("an outer rate without a schedule is the same in every round") {
  for (uint64_t round : {1, 2, 1000}) CHECK(OuterLrFactor({}, round) == 1);
}

TEST_CASE("an outer warm-up rises to 1 in its last round and stays") {
  const OuterSchedule schedule = {OuterShape::kConstant, 4, 0, 0.1};
  CHECK(OuterLrFactor(schedule, 1) == 0.25);
  CHECK(OuterLrFactor(schedule, 3) == 0.75);
  CHECK(OuterLrFactor(schedule, 4) == 1);
  CHECK(OuterLrFactor(schedule, 400) == 1);
}

TEST_CASE("an outer decay begins after the warm-up and ends at min_lr") {
  const OuterSchedule linear = {OuterShape::kLinear, 2, 10, 0.4};
  CHECK(OuterLrFactor(linear, 2) == 1);
  CHECK(OuterLrFactor(linear, 7) == Approx(0.7));
  CHECK(OuterLrFactor(linear, 12) == Approx(0.4));
  CHECK(OuterLrFactor(linear, 13) == Approx(0.4));
  const OuterSchedule cosine = {OuterShape::kCosine, 0, 10, 0};
  CHECK(OuterLrFactor(cosine, 1) == 1);
  CHECK(OuterLrFactor(cosine, 6) == Approx(0.5));
  CHECK(OuterLrFactor(cosine, 3) == Approx(0.9045084972));
  CHECK(OuterLrFactor(cosine, 11) == Approx(0).margin(1e-12));
}

TEST_CASE("rounds close with the outer rate of their number") {
  CoreRun run;
  run.policy.outer_lr = 0.5;
  run.policy.outer_schedule = {OuterShape::kLinear, 2, 2, 0.2};
  run.policy.merge = MergeRule::kNormClipped;
  run.Join("a");
  run.Join("b");
  std::vector<double> rates;
  for (int i = 0; i < 5; ++i) {
    run.Deliver("a");
    run.Deliver("b");
    rates.push_back(run.closed().outer_lr);
    CHECK(run.closed().merge == MergeRule::kNormClipped);
    run.Fold();
  }
  const double expected[] = {0.25, 0.5, 0.3, 0.1, 0.1};
  REQUIRE(rates.size() == std::size(expected));
  for (size_t i = 0; i < rates.size(); ++i) {
    CHECK(rates[i] == Approx(expected[i]));
  }
}

}  // namespace
}  // namespace diloco

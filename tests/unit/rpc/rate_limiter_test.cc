#include "common/rpc/rate_limiter.h"

#include "tests/support/catch.h"

namespace diloco {
namespace {

TEST_CASE("without a rate nothing waits") {
  ManualClock clock;
  RateLimiter limiter(0, &clock);
  REQUIRE(limiter.Take(1ull << 40) == absl::ZeroDuration());
}

TEST_CASE("over time the rate is kept, after a burst of a quarter second") {
  ManualClock clock;
  RateLimiter limiter(1000, &clock);
  absl::Duration waited;
  for (int i = 0; i < 40; ++i) {
    const absl::Duration pause = limiter.Take(100);
    clock.Advance(pause);
    waited += pause;
  }
  // 4000 bytes at 1000 a second; the last 100 are still on their way.
  REQUIRE(absl::ToDoubleSeconds(waited) == Approx(3.65).margin(0.01));
}

TEST_CASE("silence does not save up more than the burst") {
  ManualClock clock;
  RateLimiter limiter(1000, &clock);
  clock.Advance(absl::Hours(1));
  REQUIRE(limiter.Take(1000) == absl::ZeroDuration());
  REQUIRE(absl::ToDoubleSeconds(limiter.Take(1)) == Approx(0.75));
}

}  // namespace
}  // namespace diloco

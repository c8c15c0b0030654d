#include "common/base/backoff.h"
#include "common/base/clock.h"
#include "common/base/ids.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

TEST_CASE("hexadecimal text round-trips and refuses what is none") {
  const std::string bytes("\x00\xff\x10", 3);
  REQUIRE(ToHex(bytes) == "00ff10");
  REQUIRE(*FromHex("00FF10") == bytes);
  REQUIRE_FALSE(FromHex("0").ok());
  REQUIRE_FALSE(FromHex("0g").ok());
}

TEST_CASE("names are safe as file names and labels") {
  REQUIRE(ValidateName("worker", "a-1_b.c").ok());
  for (const char* bad : {"", ".", "../x", "-a", "A", "a/b", "a b"}) {
    INFO(bad);
    REQUIRE_FALSE(ValidateName("worker", bad).ok());
  }
  REQUIRE_FALSE(ValidateName("worker", std::string(64, 'a')).ok());
}

TEST_CASE("back-off doubles up to its limit, within its jitter") {
  Backoff backoff(
      {.initial = absl::Milliseconds(100), .max = absl::Milliseconds(300)});
  REQUIRE(backoff.Next(0.0) == absl::Milliseconds(50));
  REQUIRE(backoff.Next(1.0) == absl::Milliseconds(200));
  REQUIRE(backoff.Next(1.0) == absl::Milliseconds(300));
  REQUIRE(backoff.Next(0.0) == absl::Milliseconds(150));
  backoff.Reset();
  REQUIRE(backoff.Next(1.0) == absl::Milliseconds(100));
}

TEST_CASE("a manual clock moves only when told") {
  ManualClock clock;
  const Instant before = clock.Now();
  REQUIRE(clock.Now() == before);
  clock.Advance(absl::Seconds(2));
  REQUIRE(clock.Now() - before == absl::Seconds(2));
}

TEST_CASE("random ids differ") {
  REQUIRE(RandomBytes(16).size() == 16);
  REQUIRE(RandomBytes(16) != RandomBytes(16));
}

}  // namespace
}  // namespace diloco

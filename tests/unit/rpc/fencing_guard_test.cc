#include "worker/transport/fencing_guard.h"

#include <string>

#include "tests/support/catch.h"

namespace diloco {
namespace {

Fencing Life(uint64_t epoch, char nonce, char lineage = 'L') {
  return {.lineage = std::string(16, lineage),
          .epoch = epoch,
          .boot_nonce = std::string(8, nonce)};
}

TEST_CASE("a guard follows restarts upwards") {
  FencingGuard guard;
  REQUIRE(guard.ObserveJoin({}, Life(3, 'a')).ok());
  REQUIRE(guard.Observe(Life(3, 'a'), Life(3, 'a')).ok());
  REQUIRE(guard.Observe(Life(3, 'a'), Life(4, 'b')).ok());
  REQUIRE(guard.current() == Life(4, 'b'));
}

TEST_CASE("a reply that a restart overtook is only stale") {
  FencingGuard guard;
  REQUIRE(guard.ObserveJoin({}, Life(3, 'a')).ok());
  REQUIRE(guard.Observe(Life(3, 'a'), Life(4, 'b')).ok());
  // Asked before the restart was known.
  REQUIRE(guard.Observe(Life(3, 'a'), Life(3, 'a')).code() ==
          absl::StatusCode::kUnavailable);
  REQUIRE(guard.verdict().ok());
}

TEST_CASE(
    "C7.4 a coordinator older than one asked for, or its twin, is final") {
  FencingGuard guard;
  REQUIRE(guard.ObserveJoin({}, Life(4, 'b')).ok());
  Fencing reply;
  SECTION("older") { reply = Life(3, 'a'); }
  SECTION("twin") { reply = Life(4, 'c'); }
  REQUIRE(guard.Observe(Life(4, 'b'), reply).code() ==
          absl::StatusCode::kFailedPrecondition);
  REQUIRE_FALSE(guard.verdict().ok());
  REQUIRE(guard.Observe(Life(4, 'b'), Life(4, 'b')) == guard.verdict());
  REQUIRE(guard.ObserveJoin(Life(4, 'b'), Life(9, 'z', 'K')) ==
          guard.verdict());
}

TEST_CASE("another lineage is taken over by a join only") {
  FencingGuard guard;
  REQUIRE(guard.ObserveJoin({}, Life(4, 'b')).ok());
  REQUIRE(guard.Observe(Life(4, 'b'), Life(1, 'x', 'K')).code() ==
          absl::StatusCode::kFailedPrecondition);
  REQUIRE(guard.ObserveJoin(Life(4, 'b'), Life(1, 'x', 'K')).ok());
  REQUIRE(guard.current() == Life(1, 'x', 'K'));
  // A late reply of the old lineage.
  REQUIRE(guard.Observe(Life(4, 'b'), Life(4, 'b')).code() ==
          absl::StatusCode::kUnavailable);
}

TEST_CASE("what an earlier process kept is remembered, never lowered") {
  FencingGuard guard;
  guard.Remember(Life(5, 'e'));
  guard.Remember(Life(4, 'd'));
  REQUIRE(guard.current() == Life(5, 'e'));
  REQUIRE(guard.ObserveJoin(Life(5, 'e'), Life(4, 'd')).code() ==
          absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("a reply without fencing is refused") {
  FencingGuard guard;
  REQUIRE(guard.ObserveJoin({}, {}).code() ==
          absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace diloco

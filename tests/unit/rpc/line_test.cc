#include "common/rpc/line.h"

#include "tests/support/catch.h"

namespace diloco {
namespace {

constexpr double kMega = 1e6;

// `seconds` in which the line carries `rate` and the sender waits for it, in
// pieces of a tenth.
void Carry(ManualClock* clock, Line* line, double rate, double seconds) {
  for (int i = 0; i < static_cast<int>(seconds * 10 + 0.5); ++i) {
    clock->Advance(absl::Milliseconds(100));
    line->Passed(static_cast<uint64_t>(rate / 10), absl::Milliseconds(50));
  }
}

TEST_CASE("C5.6 connections are as many as the bytes on their way need") {
  const absl::Duration far = absl::Milliseconds(100);
  REQUIRE(ConnectionsFor(far, 0) == 1);
  REQUIRE(ConnectionsFor(far, 1.25 * kMega) == 1);  // 10 Mbit/s.
  REQUIRE(ConnectionsFor(far, 20 * kMega) == 1);
  // One that is held back by its window asks for another.
  REQUIRE(ConnectionsFor(far, 25 * kMega) == 2);
  REQUIRE(ConnectionsFor(far, 2 * 25 * kMega) == 3);
  REQUIRE(ConnectionsFor(far, 125 * kMega) == 6);
  REQUIRE(ConnectionsFor(2 * far, 1250 * kMega) == kMaxConnections);
  // The same rate in the same room.
  REQUIRE(ConnectionsFor(absl::Microseconds(300), 1250 * kMega) == 1);
}

TEST_CASE("a line is measured between two waits") {
  ManualClock clock;
  Line line(&clock, nullptr);
  REQUIRE(line.bytes_per_second() == 0);
  line.Start();
  // What the buffers of the system took at once is not the line's rate.
  line.Passed(4'000'000, absl::ZeroDuration());
  Carry(&clock, &line, 2 * kMega, 0.6);
  REQUIRE(line.bytes_per_second() == Approx(2 * kMega));
  // Nor is what a sender brings that is not held back.
  clock.Advance(absl::Seconds(10));
  line.Passed(1000, absl::ZeroDuration());
  REQUIRE(line.bytes_per_second() == Approx(2 * kMega));
  // A new stream finds the buffers empty.
  line.Start();
  line.Passed(4'000'000, absl::Milliseconds(50));
  Carry(&clock, &line, 1 * kMega, 0.5);
  REQUIRE(line.bytes_per_second() == Approx(1 * kMega));
}

TEST_CASE("the smallest of the last 16 round trips counts") {
  ManualClock clock;
  Line line(&clock, nullptr);
  line.Start();
  Carry(&clock, &line, 100 * kMega, 2);
  REQUIRE(line.connections() == 1);  // Nothing is known of the way.
  line.NoteRoundTrip(absl::Milliseconds(100));
  for (int i = 0; i < 15; ++i) line.NoteRoundTrip(absl::Milliseconds(190));
  Carry(&clock, &line, 100 * kMega, 1);
  REQUIRE(line.connections() == 5);
  line.NoteRoundTrip(absl::Milliseconds(190));
  Carry(&clock, &line, 100 * kMega, 1);
  REQUIRE(line.connections() == kMaxConnections);
}

TEST_CASE("a late answer paces bulk at nine tenths of what was measured") {
  ManualClock clock;
  Line line(&clock, nullptr);
  line.NoteRoundTrip(absl::Milliseconds(20));
  line.Start();
  Carry(&clock, &line, 1 * kMega, 1);
  REQUIRE(line.pace() == 0);
  REQUIRE(line.Take(10'000'000) == absl::ZeroDuration());
  line.NoteRoundTrip(absl::Milliseconds(119));  // Not yet late.
  REQUIRE(line.pace() == 0);
  line.NoteRoundTrip(absl::Milliseconds(120));
  REQUIRE(line.pace() == Approx(0.9 * kMega));
  REQUIRE(line.MaxPiece() == 45'000);
  line.Take(900'000);
  REQUIRE(absl::ToDoubleSeconds(line.Take(900'000)) == Approx(0.75));
  // What passes at the pace says nothing about the line.
  for (int i = 0; i < 20; ++i) {
    Carry(&clock, &line, 0.5 * kMega, 0.1);
    REQUIRE(line.Take(100'000) > absl::ZeroDuration());
  }
  REQUIRE(line.bytes_per_second() == Approx(1 * kMega));
  line.NoteRoundTrip(absl::Milliseconds(500));
  REQUIRE(line.pace() == Approx(0.9 * kMega));
  // A line that has become slower than the pace does.
  clock.Advance(absl::Seconds(10));
  Carry(&clock, &line, 0.5 * kMega, 1);
  REQUIRE(line.bytes_per_second() == Approx(0.5 * kMega));
  line.NoteRoundTrip(absl::Milliseconds(500));
  REQUIRE(line.pace() == Approx(0.45 * kMega));
  // Those on time let it have more, until it is as before.
  line.NoteRoundTrip(absl::Milliseconds(30));
  REQUIRE(line.pace() == Approx(0.5625 * kMega));
  for (int i = 0; i < 5; ++i) line.NoteRoundTrip(absl::Milliseconds(30));
  REQUIRE(line.pace() == 0);
  REQUIRE(line.MaxPiece() > 1 << 20);
}

TEST_CASE("a fast line is not paced, and bulk.max_rate holds besides") {
  ManualClock clock;
  RateLimiter limit(1'000'000, &clock);
  Line line(&clock, &limit);
  line.NoteRoundTrip(absl::Milliseconds(1));
  line.Start();
  Carry(&clock, &line, 50 * kMega, 1);
  line.NoteRoundTrip(absl::Seconds(1));
  REQUIRE(line.pace() == 0);
  line.Take(1'000'000);
  REQUIRE(absl::ToDoubleSeconds(line.Take(1)) == Approx(0.75));
}

}  // namespace
}  // namespace diloco

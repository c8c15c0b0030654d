#include "coordinator/cli/round_table.h"

#include "tests/support/catch.h"

namespace diloco {
namespace {

v1::AdminEvent Opened(uint64_t round, int64_t unix_ms) {
  v1::AdminEvent event;
  event.set_unix_ms(unix_ms);
  event.mutable_record()->mutable_round_opened()->set_round(round);
  return event;
}

v1::AdminEvent Closed(uint64_t round, int members, double loss) {
  v1::AdminEvent event;
  auto* fact = event.mutable_record()->mutable_round_closed();
  fact->set_round(round);
  fact->set_loss(loss);
  fact->set_reason("nobody delivered");
  for (int i = 0; i < members; ++i) {
    auto* member = fact->add_members();
    member->set_worker("w" + std::to_string(i));
    member->set_tokens(1000);
  }
  return event;
}

v1::AdminEvent Published(uint64_t round, uint64_t version, int64_t unix_ms,
                         uint64_t up) {
  v1::AdminEvent event;
  event.set_unix_ms(unix_ms);
  auto* fact = event.mutable_record()->mutable_version_published();
  fact->set_round(round);
  fact->set_version(version);
  fact->set_folded_tokens(2000 * version);
  event.mutable_status()->set_bytes_received(up);
  event.mutable_status()->set_train_tokens(10000);
  return event;
}

v1::AdminEvent Evaluated(uint64_t version, double loss) {
  v1::AdminEvent event;
  event.mutable_record()->mutable_eval_reported()->set_version(version);
  event.mutable_status()->mutable_eval()->set_bits_per_byte(1.9);
  event.mutable_status()->mutable_eval()->set_version(version);
  event.mutable_status()->mutable_eval()->set_loss(loss);
  return event;
}

TEST_CASE("a row is complete once its version is evaluated") {
  RoundTable table;
  CHECK(table.Feed(Opened(1, 1000)).empty());
  CHECK(table.Feed(Closed(1, 2, 5.5)).empty());
  CHECK(table.Feed(Published(1, 1, 3000, 700)).empty());
  CHECK(table.waiting());
  const auto rows = table.Feed(Evaluated(1, 5.25));
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].round == 1);
  CHECK(rows[0].updates == 2);
  CHECK(rows[0].train_loss == 5.5);
  CHECK(rows[0].eval_loss == 5.25);
  CHECK(rows[0].bits_per_byte == 1.9);
  CHECK(rows[0].seconds == 2.0);
  CHECK(rows[0].tokens == 2000);
  CHECK(rows[0].bytes_up == 700);
  CHECK_FALSE(table.waiting());
}

TEST_CASE("a version that nobody evaluates is shown with the next one") {
  RoundTable table;
  table.Feed(Opened(1, 1000));
  table.Feed(Closed(1, 2, 5.5));
  table.Feed(Published(1, 1, 3000, 700));
  table.Feed(Closed(2, 2, 5.0));
  const auto rows = table.Feed(Published(2, 2, 4000, 1500));
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].version == 1);
  CHECK_FALSE(rows[0].eval_loss.has_value());
  const auto last = table.Flush();
  REQUIRE(last.size() == 1);
  CHECK(last[0].bytes_up == 800);
  CHECK(last[0].seconds == 1.0);
}

TEST_CASE("a late evaluation of an older version is not taken for the newer") {
  RoundTable table;
  table.Feed(Closed(2, 2, 5.0));
  table.Feed(Published(2, 2, 4000, 100));
  CHECK(table.Feed(Evaluated(1, 5.25)).empty());
  CHECK(table.waiting());
}

TEST_CASE("counters that start anew after a restart do not wrap around") {
  RoundTable table;
  table.Feed(Closed(1, 1, 5.0));
  table.Feed(Published(1, 1, 1000, 700));
  table.Feed(Closed(2, 1, 5.0));
  table.Feed(Published(2, 2, 2000, 300));
  CHECK(table.Flush()[0].bytes_up == 300);
}

TEST_CASE("traffic of a round that was open at the start is not known") {
  RoundTable table;
  SECTION("of the coordinator") {
    table.Feed(Opened(1, 1000));
    v1::AdminEvent started;
    started.mutable_record()->mutable_epoch_started()->set_epoch(2);
    table.Feed(started);
    // Its closing tells of the time since then.
    auto closed = Closed(1, 2, 5.5);
    closed.mutable_record()->mutable_round_closed()->set_duration_ms(2000);
    RoundTable later = table;
    later.Feed(closed);
    later.Feed(Published(1, 1, 0, 0));
    CHECK(later.Flush()[0].seconds == 0);
  }
  SECTION("of the watch") {
    v1::StatusResponse status;
    status.add_rounds()->set_round(1);
    table.BeginAt(status);
  }
  table.Feed(Closed(1, 2, 5.5));
  table.Feed(Published(1, 1, 3000, 300));
  table.Feed(Opened(2, 3000));
  table.Feed(Closed(2, 2, 5.0));
  auto rows = table.Feed(Published(2, 2, 4000, 1500));
  REQUIRE(rows.size() == 1);
  CHECK_FALSE(rows[0].measured);
  rows = table.Flush();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].measured);
  CHECK(rows[0].bytes_up == 1200);
}

TEST_CASE("a void round is a row of its own with the reason") {
  RoundTable table;
  const auto rows = table.Feed(Closed(3, 0, 0));
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].version == 0);
  CHECK(RoundLine(rows[0]) == "    3  void: nobody delivered\n");
}

TEST_CASE("what the journal tells of a round before a restart is shown") {
  RoundTable table;
  table.Feed(Opened(1, 0));
  auto closed = Closed(1, 2, 5.5);
  closed.mutable_record()->mutable_round_closed()->set_duration_ms(4000);
  table.Feed(closed);
  table.Feed(Published(1, 1, 0, 0));
  auto rows = table.Feed(Evaluated(1, 5.25));
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].seconds == 4);
  CHECK(RoundLine(rows[0]) ==
        "    1  2.00k/10.0k   2        5.5000  5.2500  1.900   190.6   500     "
        "-        -        -\n");
  CHECK(RoundJson(rows[0])["bytes_up"].is_null());
  CHECK(RoundJson(rows[0])["eval_loss"] == 5.25);
  // The first one after the restart has no version's time before it.
  table.Feed(closed);
  table.Feed(Published(2, 2, 50000, 700));
  rows = table.Flush();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].seconds == 0);  // Its closing was of round 1.
  CHECK(rows[0].bytes_up == 700);
}

v1::AdminEvent Worked(uint64_t version, double train_seconds) {
  auto event =
      Published(version, version, 1000 * static_cast<int64_t>(version), 0);
  auto* worker = event.mutable_status()->add_workers();
  worker->set_name("w0");
  worker->mutable_progress()->set_train_seconds(train_seconds);
  return event;
}

v1::AdminEvent Joined(bool fresh) {
  v1::AdminEvent event;
  event.set_unix_ms(500);
  event.mutable_record()->mutable_worker_joined()->set_worker("w0");
  event.mutable_record()->mutable_worker_joined()->set_fresh(fresh);
  return event;
}

double TrainSeconds(RoundTable& table, const v1::AdminEvent& event) {
  table.Feed(event);
  return table.Flush().back().train_seconds;
}

TEST_CASE("a worker's life before the first event is not the first row's") {
  RoundTable table;
  CHECK(TrainSeconds(table, Worked(1, 100)) == 0);
  CHECK(TrainSeconds(table, Worked(2, 103)) == 3);
  // A crash took it back to its checkpoint, and it trains that again.
  table.Feed(Joined(false));
  CHECK(TrainSeconds(table, Worked(3, 102)) == 0);
  CHECK(TrainSeconds(table, Worked(4, 105)) == 3);
  // It begins a new life.
  table.Feed(Joined(true));
  CHECK(TrainSeconds(table, Worked(5, 4)) == 4);
  RoundTable later;
  later.BeginAt(Worked(5, 4).status());
  CHECK(TrainSeconds(later, Worked(6, 6)) == 2);
}

TEST_CASE(
    "time in training, transfer and waiting counts since the row before") {
  RoundTable table;
  auto first = Published(1, 1, 1000, 0);
  auto* worker = first.mutable_status()->add_workers();
  worker->set_name("w0");
  worker->mutable_progress()->set_train_seconds(10);
  worker->mutable_progress()->set_wait_seconds(5);
  table.Feed(first);
  auto second = first;
  second.mutable_record()->mutable_version_published()->set_version(2);
  second.mutable_status()
      ->mutable_workers(0)
      ->mutable_progress()
      ->set_train_seconds(13);
  second.mutable_status()
      ->mutable_workers(0)
      ->mutable_progress()
      ->set_wait_seconds(6);
  table.Feed(second);
  const auto rows = table.Flush();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].train_seconds == 3);
  CHECK(rows[0].wait_seconds == 1);
  CHECK_THAT(RoundLine(rows[0]), Catch::Contains(" 75%   0%  25%"));
}

}  // namespace
}  // namespace diloco

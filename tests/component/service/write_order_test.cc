#include "coordinator/service/write_order.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace diloco {
namespace {

// Names.
constexpr int kUpload = 0, kOther = 0;
constexpr int kCalls[64] = {};

struct Order {
  void Park(int call, uint64_t at, const void* upload = &kUpload) {
    order.Park(
        upload, at, &kCalls[call], [this] { return stands_at; },
        [this, call] { resumed.push_back(call); });
  }
  WriteOrder order;
  uint64_t stands_at = 0;
  std::vector<int> resumed;
};

TEST_CASE("what waits is resumed when its upload has come that far") {
  Order o;
  o.Park(1, 100);
  o.Park(2, 200);
  o.Park(3, 100, &kOther);
  o.order.Advance(&kUpload, 99);
  REQUIRE(o.resumed.empty());
  o.order.Advance(&kUpload, 100);
  REQUIRE(o.resumed == std::vector<int>{1});
  o.order.Advance(&kUpload, 300);
  REQUIRE(o.resumed == std::vector<int>{1, 2});
  o.order.Advance(&kOther, 100);
  REQUIRE(o.resumed == std::vector<int>{1, 2, 3});
}

TEST_CASE("an upload that moved before its chunk was parked resumes at once") {
  Order o;
  o.stands_at = 100;
  o.Park(1, 100);
  REQUIRE(o.resumed == std::vector<int>{1});
}

TEST_CASE("a call that ended is not resumed; one that failed resumes all") {
  Order o;
  o.Park(1, 100);
  o.Park(2, 200);
  o.Park(3, 300);
  o.order.Drop(&kCalls[2]);
  o.order.Fail(&kUpload);
  REQUIRE(o.resumed == std::vector<int>{1, 3});
}

TEST_CASE("chunks that come too early are bounded, for each upload") {
  Order o;
  for (int i = 0; i < 8; ++i) o.Park(i, 1000 + static_cast<uint64_t>(i));
  REQUIRE(o.resumed.empty());
  // A sender has no more: the first one is of an attempt before, and ends.
  o.Park(8, 7000);
  REQUIRE(o.resumed == std::vector<int>{0});
  // Others are not held up by it.
  o.Park(9, 1000, &kOther);
  REQUIRE(o.resumed.size() == 1);
  o.order.Advance(&kUpload, 2000);
  REQUIRE(o.resumed == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("uploads share sixteen streams, and each has one") {
  WriteOrder order;
  REQUIRE(order.StreamsForUpload() == 8);
  for (int i = 0; i < 11; ++i) order.Opened();
  REQUIRE(order.StreamsForUpload() == 5);
  for (int i = 0; i < 20; ++i) order.Opened();
  REQUIRE(order.StreamsForUpload() == 1);
  for (int i = 0; i < 31; ++i) order.Closed();
  REQUIRE(order.StreamsForUpload() == 8);
}

}  // namespace
}  // namespace diloco

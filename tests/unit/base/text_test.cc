// Helpers for text: UTF-8, distance of words.
#include "common/base/edit_distance.h"
#include "common/base/utf8.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

TEST_CASE("invalid UTF-8 is found at its first byte") {
  REQUIRE_FALSE(FindInvalidUtf8("").has_value());
  REQUIRE_FALSE(
      FindInvalidUtf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\xA6\x99z").has_value());
  REQUIRE(FindInvalidUtf8("ab\xFF") == 2);
  REQUIRE(FindInvalidUtf8("\xC3") == 0);
  REQUIRE(FindInvalidUtf8("x\xC0\x80") == 1);         // Overlong.
  REQUIRE(FindInvalidUtf8("x\xED\xA0\x80") == 1);     // Surrogate.
  REQUIRE(FindInvalidUtf8("\xF4\x90\x80\x80") == 0);  // Above U+10FFFF.
  REQUIRE(FindInvalidUtf8("ok\xE2\x82") == 2);
}

TEST_CASE("printable text moves no cursor and forges no line") {
  CHECK(Printable("caf\xC3\xA9 \xE2\x82\xAC") == "caf\xC3\xA9 \xE2\x82\xAC");
  CHECK(Printable("a\x1b[2J\n\x7f") == "a\\x1b[2J\\x0a\\x7f");
  CHECK(Printable("\xC2\x9B") == "\\xc2\\x9b");           // C1's CSI.
  CHECK(Printable("\xE2\x80\xAE") == "\\xe2\\x80\\xae");  // Right to left.
  CHECK(Printable("\xFFz") == "\\xffz");
}

TEST_CASE("the nearest name is found only when it is near") {
  const std::vector<std::string> names = {"status", "stop", "watch"};
  CHECK(NearestName("statsu", names) == "status");
  CHECK(NearestName("stpo", names) == "stop");
  CHECK(NearestName("zebra", names).empty());
}

TEST_CASE("the edit distance counts a swap as one") {
  CHECK(EditDistance("", "abc") == 3);
  CHECK(EditDistance("interval", "intreval") == 1);
  CHECK(EditDistance("wokers", "workers") == 1);
  CHECK(EditDistance("kitten", "sitting") == 3);
}

}  // namespace
}  // namespace diloco

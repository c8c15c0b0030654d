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

TEST_CASE("the edit distance counts a swap as one") {
  CHECK(EditDistance("", "abc") == 3);
  CHECK(EditDistance("interval", "intreval") == 1);
  CHECK(EditDistance("wokers", "workers") == 1);
  CHECK(EditDistance("kitten", "sitting") == 3);
}

}  // namespace
}  // namespace diloco

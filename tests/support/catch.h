// The one include of Catch2 (v2 here; v3 differs in the header's name). Include
// it last: torch and Catch2 both own the name CHECK, so files that see torch
// use REQUIRE only.
#ifndef TESTS_SUPPORT_CATCH_H_
#define TESTS_SUPPORT_CATCH_H_

#include <catch2/catch.hpp>

#endif  // TESTS_SUPPORT_CATCH_H_

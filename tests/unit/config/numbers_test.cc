// Spellings of numbers: acceptance cases C4.1 and C4.4.
#include "common/config/numbers.h"

#include <cmath>
#include <limits>

#include "tests/support/catch.h"

namespace diloco {
namespace {

TEST_CASE("C4.1 the usual spellings of a real number are read exactly") {
  const std::pair<const char*, double> cases[] = {
      {"1e-4", 1e-4},
      {"1E-4", 1e-4},
      {"1.e-4", 1e-4},
      {".5", 0.5},
      {"5e-04", 5e-4},
      {"0", 0.0},
      {"0.0", 0.0},
      {"-2.5", -2.5},
      {"3", 3.0},
      {"1.0e+08", 1e8},
      {"0.1", 0.1},
      {"0e-400", 0.0},
      {"1.7976931348623157e308", std::numeric_limits<double>::max()}};
  for (const auto& [text, expected] : cases) {
    INFO(text);
    double value = -1;
    REQUIRE(ParseReal(text, &value) == "");
    REQUIRE(value == expected);
  }
}

TEST_CASE("C4.1 C4.4 everything else is refused as a real number") {
  for (const char* text :
       {"1e",    "1e+",   "1e400", "-1e400", "1e-400",   "0x10", "0X1p3",
        "1_000", "1,000", "1'000", "",       ".",        "-",    "+1",
        "e5",    "1e5.5", "1.2.3", "010",    "-010",     "00.5", "0o10",
        "0b1",   ".inf",  "-.inf", "inf",    "infinity", ".nan", "nan",
        "NaN",   "1 ",    " 1",    "1k",     "1e-4x",    "--1",  "true"}) {
    INFO(text);
    double value = -1;
    REQUIRE(ParseReal(text, &value) != "");
    REQUIRE(value == -1);
  }
}

TEST_CASE("counts take powers of 1000 and stay exact") {
  const std::pair<const char*, uint64_t> cases[] = {
      {"0", 0},
      {"1024", 1024},
      {"50k", 50'000},
      {"1.8M", 1'800'000},
      {"32k", 32'000},
      {"0.5k", 500},
      {"2G", 2'000'000'000},
      {"2B", 2'000'000'000},
      {"1.50T", 1'500'000'000'000},
      {"1.0", 1},
      {"18446744073709551615", std::numeric_limits<uint64_t>::max()}};
  for (const auto& [text, expected] : cases) {
    INFO(text);
    uint64_t value = 7;
    REQUIRE(ParseCount(text, &value) == "");
    REQUIRE(value == expected);
  }
}

TEST_CASE("C4.1 C4.4 counts refuse exponents, separators, signs and parts") {
  for (const char* text : {"1e3",
                           "1,000",
                           "1_000",
                           "010",
                           "-1",
                           "+1",
                           "0x10",
                           "1.5",
                           "0.0001k",
                           "k",
                           "1 k",
                           "1K",
                           "1m",
                           "1kk",
                           "1.k",
                           ".5k",
                           "1MiB",
                           "",
                           "abc",
                           "18446744073709551616",
                           "99999999999999999999999",
                           ".inf",
                           ".nan"}) {
    INFO(text);
    uint64_t value = 7;
    REQUIRE(ParseCount(text, &value) != "");
    REQUIRE(value == 7);
  }
}

TEST_CASE("sizes and durations need their unit") {
  uint64_t bytes = 0;
  REQUIRE(ParseBytes("64MiB", &bytes) == "");
  REQUIRE(bytes == 64u << 20);
  REQUIRE(ParseBytes("1.5kB", &bytes) == "");
  REQUIRE(bytes == 1500);
  for (const char* text : {"64", "64mb", "64M", "64 MiB", "1.0001kB", "-1B"}) {
    INFO(text);
    REQUIRE(ParseBytes(text, &bytes) != "");
  }
  absl::Duration duration;
  const std::pair<const char*, absl::Duration> good[] = {
      {"5m", absl::Minutes(5)},
      {"30s", absl::Seconds(30)},
      {"250ms", absl::Milliseconds(250)},
      {"1.5h", absl::Minutes(90)},
      {"2d", absl::Hours(48)}};
  for (const auto& [text, expected] : good) {
    INFO(text);
    REQUIRE(ParseDurationWithUnit(text, &duration) == "");
    REQUIRE(duration == expected);
  }
  for (const char* text : {"5", "5min", "5 m", "-5s", "0.5ms", "1us", "1h30m",
                           "inf", "99999999999d"}) {
    INFO(text);
    REQUIRE(ParseDurationWithUnit(text, &duration) != "");
  }
}

TEST_CASE("C4.1 printed numbers have a point, so PyYAML reads numbers") {
  REQUIRE(PrintReal(1e-4) == "1.0e-04");
  REQUIRE(PrintReal(0.003) == "0.003");
  REQUIRE(PrintReal(2) == "2.0");
  REQUIRE(PrintReal(1e22) == "1.0e+22");
  REQUIRE(PrintReal(1.5e-8) == "1.5e-08");
  REQUIRE(PrintBytes(64 << 20) == "64MiB");
  REQUIRE(PrintBytes(0) == "0B");
  REQUIRE(PrintDuration(absl::Minutes(5)) == "5m");
  REQUIRE(PrintDuration(absl::Milliseconds(1500)) == "1500ms");
}

TEST_CASE("printed numbers read back to the same bits") {
  for (double value : {1e-4, 0.1, 1.0 / 3, 2e-310, 1e300, 123456789.0, -0.5}) {
    CAPTURE(value);
    double again = 0;
    REQUIRE(ParseReal(PrintReal(value), &again) == "");
    REQUIRE(again == value);
  }
}

}  // namespace
}  // namespace diloco

// The strict flags of the worker's sub-commands.
#include "worker/tools/flags.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace diloco {
namespace {

struct Parsed {
  std::string in;
  uint64_t parts = 1;
  double rate = 0.5;
  bool fast = false;
  std::optional<int> code;
};

Parsed Parse(std::vector<std::string> arguments) {
  Parsed parsed;
  Flags flags("test", "Tests.");
  flags.Text("in", &parsed.in, "input");
  flags.Count("parts", &parsed.parts, "parts", 1, 8);
  flags.Real("rate", &parsed.rate, "rate");
  flags.Switch("fast", &parsed.fast, "fast");
  flags.Require("in");
  arguments.insert(arguments.begin(), "test");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  parsed.code = flags.Parse(static_cast<int>(argv.size()), argv.data());
  return parsed;
}

TEST_CASE("flags take both forms and keep defaults") {
  const Parsed a = Parse({"--in", "x", "--parts=3", "--fast"});
  REQUIRE_FALSE(a.code.has_value());
  REQUIRE(a.in == "x");
  REQUIRE(a.parts == 3);
  REQUIRE(a.rate == 0.5);
  REQUIRE(a.fast);
  const Parsed b = Parse({"--in=a=b", "--fast=false", "--rate", "1e-3"});
  REQUIRE_FALSE(b.code.has_value());
  REQUIRE(b.in == "a=b");
  REQUIRE_FALSE(b.fast);
  REQUIRE(b.rate == 1e-3);
}

TEST_CASE("a mistake in a flag is a usage error") {
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"--in", "x", "--part", "3"},
                                             {"--in", "x", "--parts", "-1"},
                                             {"--in", "x", "--parts", "3x"},
                                             {"--in", "x", "--parts", "0"},
                                             {"--in", "x", "--parts", "9"},
                                             {"--in", "x", "--rate", "fast"},
                                             {"--in", "x", "--fast=maybe"},
                                             {"--in", "x", "stray"},
                                             {"--in", "x", "--parts"},
                                             {"--parts", "3"}}) {
    REQUIRE(Parse(wrong).code == kExitUsage);
  }
}

TEST_CASE("help ends well, also without what is required") {
  REQUIRE(Parse({"--help"}).code == kExitOk);
}

}  // namespace
}  // namespace diloco

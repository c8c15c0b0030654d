#include "tests/sim/plan.h"

#include <set>

#include "tests/sim/options.h"
#include "tests/support/catch.h"

namespace diloco::sim {
namespace {

TEST_CASE("a seed draws the same plan each time, another seed another") {
  SimOptions options;
  options.faults_per_hour = 100;
  const auto text = [](const SimOptions& of) {
    std::string all;
    for (const Fault& fault : DrawPlan(of).faults)
      all += Describe(fault) + "\n";
    return all;
  };
  const std::string first = text(options);
  REQUIRE(!first.empty());
  REQUIRE(text(options) == first);
  options.seed = 2;
  REQUIRE(text(options) != first);
}

TEST_CASE("faults come at the rate that was asked for, in order") {
  SimOptions options;
  options.rounds = 400;
  options.faults_per_hour = 60;
  const Plan plan = DrawPlan(options);
  const double hours = 4 * absl::ToDoubleHours(plan.nominal);
  REQUIRE(static_cast<double>(plan.faults.size()) > 0.8 * 60 * hours);
  REQUIRE(static_cast<double>(plan.faults.size()) < 1.2 * 60 * hours);
  for (size_t i = 1; i < plan.faults.size(); ++i) {
    REQUIRE(plan.faults[i - 1].at <= plan.faults[i].at);
  }
  options.faults_per_hour = 0;
  REQUIRE(DrawPlan(options).faults.empty());
}

TEST_CASE("a longer run has the same first faults") {
  SimOptions options;
  options.faults_per_hour = 100;
  const Plan plan = DrawPlan(options);
  options.rounds *= 2;
  const Plan longer = DrawPlan(options);
  REQUIRE(longer.faults.size() > plan.faults.size());
  for (size_t i = 0; i < plan.faults.size(); ++i) {
    REQUIRE(Describe(longer.faults[i]) == Describe(plan.faults[i]));
  }
}

TEST_CASE("the command of a run is read back to the same run") {
  SimOptions options;
  options.seed = 77;
  options.workers = 5;
  options.rounds = 9;
  options.faults_per_hour = 12.5;
  options.only = {3, 14};
  options.plant = Plant::kSkipFsync;
  std::vector<std::string> words;
  std::string word;
  for (const char c : CommandOf(options) + " ") {
    if (c != ' ') {
      word += c;
    } else {
      words.push_back(std::exchange(word, ""));
    }
  }
  words.erase(words.begin());
  const absl::StatusOr<CommandLine> line = ParseCommandLine(words);
  REQUIRE(line.ok());
  REQUIRE(CommandOf(line->sim) == CommandOf(options));
}

TEST_CASE("--vary draws workers, faults and fragments, but those given") {
  const auto drawn = [](const std::vector<std::string>& args) {
    std::set<uint32_t> fragments;
    for (uint64_t seed = 1; seed <= 100; ++seed) {
      const SimOptions options = OptionsOfSeed(*ParseCommandLine(args), seed);
      CHECK(options.workers >= 3);
      CHECK(options.workers <= 12);
      CHECK(options.faults_per_hour <= 60);
      fragments.insert(options.fragments);
    }
    return fragments;
  };
  CHECK(drawn({"--vary"}) == std::set<uint32_t>{1, 2, 3});
  CHECK(drawn({"--vary", "--fragments", "1"}) == std::set<uint32_t>{1});
  CHECK(drawn({"--vary", "--fragments", "4"}) == std::set<uint32_t>{4});
}

TEST_CASE("a wrong command line is refused by its flag") {
  const auto refused = [](const std::vector<std::string>& args) {
    return std::string(ParseCommandLine(args).status().message());
  };
  REQUIRE(refused({"--workers", "0"}) ==
          "--workers 0: a whole number from 1 to 64");
  REQUIRE(refused({"--seed"}).find("--seed needs a value") == 0);
  REQUIRE(refused({"--sed", "1"}) == "unknown flag --sed");
  REQUIRE(refused({"--faults-per-hour", "-1"}) ==
          "--faults-per-hour -1: a number from 0 to 10000");
  REQUIRE(refused({"--plant", "x"}) == "--plant x: no such defect");
  REQUIRE(refused({"--only", "3,x"}).find("--only 3,x") == 0);
  REQUIRE(refused({"--runs", "2", "--only", "3"}).find("--only") == 0);
}

}  // namespace
}  // namespace diloco::sim

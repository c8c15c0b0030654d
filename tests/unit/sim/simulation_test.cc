#include "tests/sim/simulation.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "tests/sim/shrink.h"
#include "tests/support/catch.h"

namespace diloco::sim {
namespace {

SimResult RunQuiet(const SimOptions& options, std::string* trace = nullptr) {
  SetLogLevel(static_cast<LogLevel>(static_cast<int>(LogLevel::kError) + 1));
  Trace record;
  if (trace != nullptr) {
    record = [trace](Instant at, const std::string& who,
                     const std::string& what) {
      absl::StrAppend(trace, Stamp(at), " ", who, ": ", what, "\n");
    };
  }
  const SimResult result = Simulation(options, DrawPlan(options), record).Run();
  SetLogLevel(LogLevel::kInfo);
  return result;
}

TEST_CASE("C6.8 without faults every round is folded, and nothing is lost") {
  SimOptions options;
  options.workers = 2;
  options.rounds = 6;
  options.faults_per_hour = 0;
  const SimResult result = RunQuiet(options);
  REQUIRE(result.broken == "");
  REQUIRE(result.version == 6);
  REQUIRE(result.tokens_folded == result.tokens_made);
}

TEST_CASE("a seed replays exactly, faults and all") {
  SimOptions options;
  options.seed = 11;
  options.rounds = 8;
  options.faults_per_hour = 125;
  std::string first;
  std::string second;
  const SimResult a = RunQuiet(options, &first);
  const SimResult b = RunQuiet(options, &second);
  REQUIRE(a.broken == "");
  REQUIRE(first == second);
  REQUIRE(a.digest == b.digest);
  REQUIRE(first.find("plan: ") != std::string::npos);
}

TEST_CASE("a list of faults shrinks to the shortest that still fails") {
  std::vector<size_t> all;
  for (size_t i = 0; i < 100; ++i) all.push_back(i);
  int tries = 0;
  const auto fails = [&](const std::vector<size_t>& kept) {
    ++tries;
    const std::set<size_t> set(kept.begin(), kept.end());
    return set.count(17) != 0 && set.count(18) != 0 && set.count(93) != 0;
  };
  REQUIRE(Shrink(all, fails) == std::vector<size_t>{17, 18, 93});
  REQUIRE(tries < 150);
  REQUIRE(Shrink(all, [](const std::vector<size_t>&) { return true; }).empty());
}

// The first seed at which the simulation finds the planted defect, shrunk.
std::vector<size_t> FindAndShrink(Plant plant, const std::string& told) {
  SimOptions options;
  options.workers = 3;
  options.rounds = 10;
  options.faults_per_hour = 125;
  options.plant = plant;
  for (options.seed = 1; options.seed < 40; ++options.seed) {
    const SimResult result = RunQuiet(options);
    if (result.broken.empty()) continue;
    INFO(result.broken);
    REQUIRE(result.broken.find(told) != std::string::npos);
    std::vector<size_t> all;
    const std::vector<Fault> faults = DrawPlan(options).faults;
    for (size_t i = 0; i < faults.size() && faults[i].at <= result.took; ++i) {
      all.push_back(i);
    }
    return Shrink(all, [options](const std::vector<size_t>& kept) {
      SimOptions tried = options;
      tried.only = kept;
      return !RunQuiet(tried).broken.empty();
    });
  }
  FAIL("not found");
  return {};
}

TEST_CASE("C6.1 an update that counts twice is found, with no fault at all") {
  REQUIRE(FindAndShrink(Plant::kCountTwice, "offers ").empty());
}

TEST_CASE("C6.4 a divisor that is not the accepted weight is found") {
  REQUIRE(FindAndShrink(Plant::kWrongWeight, "weighs the update").empty());
}

TEST_CASE("C7.1 fsyncs that do nothing are found, by one power cut") {
  REQUIRE(FindAndShrink(Plant::kSkipFsync, "the ").size() == 1);
}

TEST_CASE("C7.3 momentum that a restart forgets is found, by a few faults") {
  const std::vector<size_t> few =
      FindAndShrink(Plant::kForgetMomentum, "a clean replay gives");
  REQUIRE(!few.empty());
  REQUIRE(few.size() <= 3);
}

}  // namespace
}  // namespace diloco::sim

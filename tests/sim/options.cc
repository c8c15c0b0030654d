#include "tests/sim/options.h"

#include <algorithm>
#include <functional>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "worker/simulate/stream.h"

namespace diloco::sim {
namespace {

constexpr uint64_t kMaxRuns = 100'000'000;
constexpr uint64_t kMaxWorkers = 64;
constexpr uint64_t kMaxRounds = 1'000'000;
// Tensors of the model, and the shortest interval.
constexpr uint64_t kMaxFragments = 6;
constexpr double kMaxFaults = 10'000;

absl::Status Bad(const std::string& flag, const std::string& value,
                 const std::string& wanted) {
  return absl::InvalidArgumentError(absl::StrCat(
      flag, value.empty() ? " needs a value: " : absl::StrCat(" ", value, ": "),
      wanted));
}

absl::StatusOr<uint64_t> Count(const std::string& flag,
                               const std::string& value, uint64_t least,
                               uint64_t most) {
  uint64_t number = 0;
  if (!absl::SimpleAtoi(value, &number) || number < least || number > most) {
    return Bad(flag, value,
               absl::StrCat("a whole number from ", least, " to ", most));
  }
  return number;
}

const char* PlantName(Plant plant) {
  for (const char* name :
       {"count-twice", "skip-fsync", "wrong-weight", "forget-momentum"}) {
    if (ParsePlant(name) == plant) return name;
  }
  return nullptr;
}

absl::Status Set(CommandLine& line, const std::string& flag,
                 const std::string& value) {
  SimOptions& sim = line.sim;
  absl::StatusOr<uint64_t> number;
  if (flag == "--seed") {
    number = Count(flag, value, 0, UINT64_MAX);
    if (number.ok()) sim.seed = *number;
  } else if (flag == "--runs") {
    number = Count(flag, value, 1, kMaxRuns);
    if (number.ok()) line.runs = *number;
  } else if (flag == "--workers") {
    number = Count(flag, value, 1, kMaxWorkers);
    if (number.ok()) sim.workers = static_cast<int>(*number);
  } else if (flag == "--fragments") {
    number = Count(flag, value, 1, kMaxFragments);
    if (number.ok()) sim.fragments = static_cast<uint32_t>(*number);
    line.vary_fragments = false;
  } else if (flag == "--rounds") {
    number = Count(flag, value, 1, kMaxRounds);
    if (number.ok()) sim.rounds = *number;
  } else if (flag == "--faults-per-hour") {
    double faults = 0;
    if (!absl::SimpleAtod(value, &faults) || !(faults >= 0) ||
        faults > kMaxFaults) {
      return Bad(flag, value, absl::StrCat("a number from 0 to ", kMaxFaults));
    }
    sim.faults_per_hour = faults;
    return absl::OkStatus();
  } else if (flag == "--plant") {
    const std::optional<Plant> plant = ParsePlant(value);
    if (!plant.has_value()) return Bad(flag, value, "no such defect");
    sim.plant = *plant;
    return absl::OkStatus();
  } else if (flag == "--only") {
    sim.only.emplace();
    if (value == "none") return absl::OkStatus();
    for (const absl::string_view part : absl::StrSplit(value, ',')) {
      size_t fault = 0;
      if (!absl::SimpleAtoi(part, &fault)) {
        return Bad(flag, value, "numbers of faults, as 3,17, or none");
      }
      sim.only->push_back(fault);
    }
    return absl::OkStatus();
  } else {
    return absl::InvalidArgumentError(absl::StrCat("unknown flag ", flag));
  }
  return number.status();
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(
    const std::vector<std::string>& args) {
  CommandLine line;
  const std::map<std::string, std::function<void()>> switches = {
      {"--trace", [&] { line.trace = true; }},
      {"--vary", [&] { line.vary = true; }},
      {"--figures", [&] { line.figures = true; }},
      {"--no-shrink", [&] { line.shrink = false; }},
      {"--log", [&] { line.log = true; }},
      {"--help", [&] { line.help = true; }}};
  for (size_t i = 0; i < args.size(); ++i) {
    const auto found = switches.find(args[i]);
    if (found != switches.end()) {
      found->second();
      continue;
    }
    const std::string value = i + 1 < args.size() ? args[i + 1] : "";
    if (const absl::Status set = Set(line, args[i], value); !set.ok()) {
      return set;
    }
    ++i;
  }
  if (line.sim.only.has_value() && line.runs > 1) {
    return absl::InvalidArgumentError(
        "--only names faults of one seed's plan: without --runs");
  }
  return line;
}

std::string CommandOf(const SimOptions& options) {
  std::string command = absl::StrFormat(
      "diloco-sim --seed %d --workers %d --rounds %d --faults-per-hour %g",
      options.seed, options.workers, options.rounds, options.faults_per_hour);
  if (options.fragments > 1) {
    absl::StrAppend(&command, " --fragments ", options.fragments);
  }
  if (options.only.has_value()) {
    absl::StrAppend(
        &command, " --only ",
        options.only->empty() ? "none" : absl::StrJoin(*options.only, ","));
  }
  if (options.plant != Plant::kNone) {
    absl::StrAppend(&command, " --plant ", PlantName(options.plant));
  }
  return command;
}

SimOptions OptionsOfSeed(const CommandLine& line, uint64_t seed) {
  SimOptions options = line.sim;
  options.seed = seed;
  if (!line.vary) return options;
  Stream stream(seed, "options");
  options.workers = static_cast<int>(3 + stream.Below(10));
  options.faults_per_hour =
      std::floor(options.faults_per_hour * std::sqrt(stream.Uniform()) * 10) /
      10;
  Stream fragments(seed, "fragments");
  if (line.vary_fragments && fragments.Chance(1.0 / 3)) {
    options.fragments = static_cast<uint32_t>(2 + fragments.Below(2));
  }
  return options;
}

}  // namespace diloco::sim

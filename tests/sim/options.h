// The command line of diloco-sim.
#ifndef TESTS_SIM_OPTIONS_H_
#define TESTS_SIM_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/sim/plan.h"

namespace diloco::sim {

struct CommandLine {
  SimOptions sim;
  uint64_t runs = 1;  // Seeds from sim.seed on.
  // 3 to 12 workers, the faults an hour and, if --fragments is not there, 1 to
  // 3 fragments by the seed.
  bool vary = false;
  bool vary_fragments = true;
  bool trace = false;    // Also with --runs.
  bool shrink = true;    // What failed.
  bool figures = false;  // A line for each run.
  bool log = false;      // What the product logs, too.
  bool help = false;
};
inline constexpr char kUsage[] =
    "usage: diloco-sim [--seed N] [--workers K] [--fragments P] [--rounds T]\n"
    "                  [--faults-per-hour F] [--runs N] [--vary] [--trace]\n"
    "                  [--figures] [--only I,I,... | --only none]\n"
    "                  [--no-shrink] [--log] [--plant DEFECT]\n"
    "DEFECT: count-twice, skip-fsync, wrong-weight, forget-momentum\n"
    "exit code: 0 everything held, 1 something did not, 2 usage\n";

// INVALID_ARGUMENT names the flag.
absl::StatusOr<CommandLine> ParseCommandLine(
    const std::vector<std::string>& args);

// The command that runs exactly this again.
std::string CommandOf(const SimOptions& options);

// The options of seed `seed`: those given or, with `vary`, what it draws.
SimOptions OptionsOfSeed(const CommandLine& line, uint64_t seed);

}  // namespace diloco::sim

#endif  // TESTS_SIM_OPTIONS_H_

// diloco-sim: simulated runs from seeds, see README.md beside this file. Prints
// a trace, or with --runs a line of progress and the figures of all runs; what
// does not hold is told with the shortest list of faults that leads to it.

#include <cstdio>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "tests/sim/options.h"
#include "tests/sim/shrink.h"
#include "tests/sim/simulation.h"

namespace diloco::sim {
namespace {

constexpr absl::Duration kProgressEvery = absl::Seconds(10);

void Print(const std::string& line) { std::printf("%s\n", line.c_str()); }

void PrintTrace(Instant at, const std::string& who, const std::string& what) {
  Print(absl::StrCat(Stamp(at), " ", who, ": ", what));
}

SimResult RunOnce(const SimOptions& options, const Trace& trace) {
  return Simulation(options, DrawPlan(options), trace).Run();
}

void PrintBroken(const CommandLine& line, SimOptions options,
                 const SimResult& result) {
  Print(absl::StrCat("BROKEN seed ", options.seed, ": ", result.broken));
  Print(absl::StrCat("  again: ", CommandOf(options)));
  if (!line.shrink) return;
  const Plan plan = DrawPlan(options);
  std::vector<size_t> faults;
  if (options.only.has_value()) {
    faults = *options.only;
  } else {
    for (size_t i = 0; i < plan.faults.size(); ++i) {
      // Later ones have not happened.
      if (plan.faults[i].at <= result.took) faults.push_back(i);
    }
  }
  SimOptions fewer = options;
  int tries = 0;
  fewer.only = Shrink(faults, [&](const std::vector<size_t>& kept) {
    ++tries;
    SimOptions tried = options;
    tried.only = kept;
    return !RunOnce(tried, nullptr).broken.empty();
  });
  Print(absl::StrCat("  of ", faults.size(), " faults these ",
                     fewer.only->size(), " suffice (", tries, " runs):"));
  for (const size_t fault : *fewer.only) {
    Print(absl::StrCat("    ", fault, ": ", Describe(plan.faults[fault])));
  }
  Print(absl::StrCat("  then: ", RunOnce(fewer, nullptr).broken));
  Print(absl::StrCat("  again: ", CommandOf(fewer)));
}

struct Totals {
  uint64_t runs = 0;
  uint64_t broken = 0;
  absl::Duration took;
  Oracle::Ledger ledger;
  absl::Duration busy;
  uint64_t facts = 0;
  uint64_t restarts = 0;
};

// Percent: of the time that workers spent on steps that neither a crash took
// nor the run's own `late: reject`, or longer than needed on calls that nothing
// stood in the way of, that of steps that were folded. The bound has no waits
// in it: in those nobody could train.
double Throughput(const Oracle::Ledger& ledger, absl::Duration busy) {
  const absl::Duration bound = ledger.folded + ledger.discarded + busy;
  if (bound <= absl::ZeroDuration()) return 100;
  return 100 * absl::FDivDuration(ledger.folded, bound);
}

std::string Figures(const Totals& totals, absl::Duration wall) {
  const double hours = absl::ToDoubleHours(totals.took);
  const double cpu = static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return absl::StrFormat(
      "%d runs, %d broken, %.1f simulated hours in %.1f s (%.1f s of CPU: %.0f "
      "hours an hour); %d facts, %d restarts of the coordinator; %.2f worker "
      "hours lost to crashes, %.2f thrown away by late: reject, throughput "
      "%.2f %% of the rest",
      totals.runs, totals.broken, hours, absl::ToDoubleSeconds(wall), cpu,
      3600 * hours / std::max(1e-9, cpu), totals.facts, totals.restarts,
      absl::ToDoubleHours(totals.ledger.lost),
      absl::ToDoubleHours(totals.ledger.rejected),
      Throughput(totals.ledger, totals.busy));
}

int Main(const std::vector<std::string>& args) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine(args);
  if (!line.ok()) {
    std::fprintf(stderr, "diloco-sim: %s\n%s",
                 std::string(line.status().message()).c_str(), kUsage);
    return 2;
  }
  if (line->help) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  // What the product logs is expected here: above its highest level.
  if (!line->log) {
    SetLogLevel(static_cast<LogLevel>(static_cast<int>(LogLevel::kError) + 1));
  }
  const bool one = line->runs == 1;
  Clock* const clock = Clock::Real();
  const Instant begin = clock->Now();
  Instant told = begin;
  Totals totals;
  for (uint64_t i = 0; i < line->runs; ++i) {
    const SimOptions options = OptionsOfSeed(*line, line->sim.seed + i);
    const SimResult result =
        RunOnce(options, one || line->trace ? PrintTrace : Trace());
    ++totals.runs;
    totals.took += result.took;
    totals.ledger.folded += result.ledger.folded;
    totals.ledger.discarded += result.ledger.discarded;
    totals.ledger.rejected += result.ledger.rejected;
    totals.ledger.lost += result.ledger.lost;
    totals.busy += result.busy;
    totals.facts += result.facts;
    totals.restarts += static_cast<uint64_t>(result.restarts);
    if (one || line->figures) {
      Print(absl::StrFormat(
          "seed %d workers %d faults/h %g: version %d digest %s after %s, "
          "%d of %d tokens folded, throughput %.2f %%",
          options.seed, options.workers, options.faults_per_hour,
          result.version, result.digest.Short(), Stamp(result.took),
          result.tokens_folded, result.tokens_made,
          Throughput(result.ledger, result.busy)));
    }
    if (!result.broken.empty()) {
      ++totals.broken;
      PrintBroken(*line, options, result);
    }
    std::fflush(stdout);
    if (clock->Now() - told >= kProgressEvery && !one) {
      told = clock->Now();
      std::fprintf(stderr, "%s\n", Figures(totals, told - begin).c_str());
    }
  }
  Print(Figures(totals, clock->Now() - begin));
  return totals.broken == 0 ? 0 : 1;
}

}  // namespace
}  // namespace diloco::sim

int main(int argc, char** argv) {
  return diloco::sim::Main(std::vector<std::string>(argv + 1, argv + argc));
}

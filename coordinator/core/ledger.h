// What became of the data that workers drew: the windows of the journal, by
// worker, fragment, round and token range. A fold over facts like the state,
// kept apart from it because it grows with the run; `dilococtl ledger` and the
// simulation's oracle use it.
//
//   Ledger ledger;
//   for (const Fact& fact : facts) ledger.Add(fact);
//   const LedgerBalance balance = ledger.Balance(0, state.fragments[0]);
//   if (!balance.closes()) ...
#ifndef COORDINATOR_CORE_LEDGER_H_
#define COORDINATOR_CORE_LEDGER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/facts.h"
#include "coordinator/core/state.h"

namespace diloco {

enum class WindowFate {
  kPending,      // Received; its round is open or being folded.
  kFolded,       // In a version.
  kDiscarded,    // Received, but refused, of a void round, or undone.
  kOverwritten,  // Its worker went on from theta and never handed it in.
  kLost,         // Its worker came back without what it held.
};
inline constexpr WindowFate kWindowFates[] = {
    WindowFate::kPending, WindowFate::kFolded, WindowFate::kDiscarded,
    WindowFate::kOverwritten, WindowFate::kLost};
const char* WindowFateName(WindowFate fate);

struct LedgerWindow {
  uint32_t fragment = 0;
  uint64_t round = 0;  // Of one that was not handed in: the next that was.
  std::string worker;
  // In the worker's data, of which it drew tokens `first` to `end` - 1; `end`
  // is 0 where a version that did not record it wrote the fact.
  uint64_t first = 0;
  uint64_t end = 0;
  uint64_t tokens = 0;   // Of the window.
  uint64_t counted = 0;  // Of those, towards train.tokens: at most the lease.
  uint64_t again = 0;    // Of those, in a window before it as well.
  WindowFate fate = WindowFate::kPending;
  std::string reason;  // Why it was discarded.

  friend bool operator==(const LedgerWindow&, const LedgerWindow&) = default;
};

// Of one fragment, all in tokens.
struct LedgerBalance {
  size_t windows = 0;
  std::map<WindowFate, uint64_t> tokens;  // Every fate is there.
  uint64_t reached = 0;   // In the workers' data, up to their newest windows.
  uint64_t again = 0;     // A worker went back to an older checkpoint.
  uint64_t unplaced = 0;  // Of windows without a range.
  // Windows less what was reached, and pending ones less those of the open and
  // the folding round: what has no explanation.
  int64_t unexplained = 0;
  // What versions add up to, less what the run's count of folded tokens says.
  int64_t uncounted = 0;

  bool closes() const { return unexplained == 0 && uncounted == 0; }
};

class Ledger {
 public:
  // Facts in the journal's order, each of which Evolve has accepted.
  void Add(const Fact& fact);

  // In the order of their facts; gaps before the window behind them.
  const std::vector<LedgerWindow>& windows() const { return windows_; }
  // `state`: the fragment after the same facts.
  LedgerBalance Balance(uint32_t fragment, const FragmentState& state) const;

 private:
  // A worker's data, as far as a fragment has seen it.
  struct Stream {
    uint64_t reached = 0;
    // Of what comes next without having been handed in.
    WindowFate gap = WindowFate::kOverwritten;
    std::string reason;
  };
  struct Apply;
  using Key = std::pair<uint32_t, std::string>;  // Fragment, worker.

  std::vector<LedgerWindow> windows_;
  std::map<Key, Stream> streams_;
  std::map<Key, size_t> received_;  // Indices of the open or folding rounds'.
  // Folded windows of each version, for a lineage that goes back.
  std::map<std::pair<uint32_t, uint64_t>, std::vector<size_t>> versions_;
};

}  // namespace diloco

#endif  // COORDINATOR_CORE_LEDGER_H_

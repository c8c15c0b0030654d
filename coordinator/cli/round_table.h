// Turns the stream of events into one row per published version (or void
// round): losses, throughput, traffic and where the workers' time went. Used
// by `watch --rounds`; pure.
#ifndef COORDINATOR_CLI_ROUND_TABLE_H_
#define COORDINATOR_CLI_ROUND_TABLE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "diloco/v1/admin.pb.h"
#include "nlohmann/json.hpp"

namespace diloco {

struct RoundRow {
  uint32_t fragment = 0;
  uint64_t round = 0;
  uint64_t version = 0;  // Of theta. 0: the round was void.
  std::string void_reason;
  int updates = 0;
  int missing = 0;
  double train_loss = 0;  // Nats per token, mean of the round's windows.
  std::optional<double> eval_loss;  // Of this version.
  double bits_per_byte = 0;         // 0: unknown.
  uint64_t folded_tokens = 0;       // Of the run so far.
  uint64_t train_tokens = 0;        // Where the run ends.
  // Between the version before and this one; of the round alone where the
  // version before is not known. 0: unknown, also when the coordinator was
  // started in between.
  double seconds = 0;
  uint64_t tokens = 0;
  // Traffic and beats are not in the journal: they are known of rounds since
  // the coordinator's start, and of those that were counted from their opening.
  bool measured = false;
  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  // Of all workers' beats since the row before; all 0: no beat came.
  double train_seconds = 0;
  double transfer_seconds = 0;
  double wait_seconds = 0;
};

// One thread at a time.
class RoundTable {
 public:
  // What was counted before the first event that is going to be fed.
  void BeginAt(const v1::StatusResponse& status);
  // Takes the next event; returns the rows that are complete with it. A row
  // waits for its evaluation until the next version of its fragment is there.
  std::vector<RoundRow> Feed(const v1::AdminEvent& event);
  // The rows that still wait, when no more events come.
  std::vector<RoundRow> Flush();
  // Whether a row still waits for its evaluation.
  bool waiting() const { return !waiting_.empty(); }

 private:
  struct WorkerTotals {
    double train = 0;
    double transfer = 0;
    double wait = 0;
  };
  void CloseRound(const v1::RoundClosedFact& fact);
  void Publish(const v1::AdminEvent& event);
  void Measure(const v1::StatusResponse& status, RoundRow& row);
  void AddEval(const v1::StatusResponse& status);
  uint64_t ThetaVersion(const v1::AdminEvent& event);
  std::vector<RoundRow> TakeWhile(uint64_t older_than);

  std::deque<RoundRow> waiting_;
  // Closed, their versions not yet published; by fragment.
  std::map<uint32_t, RoundRow> closed_;
  std::map<uint32_t, uint64_t> versions_;  // By fragment, as far as seen.
  // Rounds that were open when counting began tell of less; so do those over
  // which the coordinator was started again. Not those of `opened_`.
  bool cut_ = false;
  bool restarted_ = false;
  std::set<uint32_t> opened_;  // Fragments whose round opened since.
  // Of the version before, or the first round's opening; 0: unknown.
  int64_t last_ms_ = 0;
  uint64_t last_up_ = 0;
  uint64_t last_down_ = 0;
  // A worker that is not in here had worked before.
  std::map<std::string, WorkerTotals> totals_;
};

std::string RoundHeader();
std::string RoundLine(const RoundRow& row);
nlohmann::ordered_json RoundJson(const RoundRow& row);

}  // namespace diloco

#endif  // COORDINATOR_CLI_ROUND_TABLE_H_

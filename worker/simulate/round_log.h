// A simulated run's versions as rows, from the coordinator's events: losses,
// virtual time, traffic, where the workers' time went.
#ifndef WORKER_SIMULATE_ROUND_LOG_H_
#define WORKER_SIMULATE_ROUND_LOG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/runtime/coordinator.h"

namespace diloco::sim {

struct RoundRow {
  uint32_t fragment = 0;
  uint64_t round = 0;
  uint64_t version = 0;  // Of theta; 0: the round was void.
  std::string void_reason;
  Digest digest;  // Of the version.
  size_t updates = 0;
  size_t missing = 0;
  double train_loss = 0;  // Nats per token, mean of the round's windows.
  std::optional<double> eval_loss;  // Of this version.
  double bits_per_byte = 0;         // 0: unknown.
  uint64_t folded_tokens = 0;       // Of the run so far.
  uint64_t train_tokens = 0;        // Where the run ends.
  uint64_t tokens = 0;              // Of this round.
  double at = 0;                    // Virtual seconds since the start.
  double seconds = 0;               // Since the row before.
  uint64_t bytes_up = 0;            // Of files, all workers; likewise below.
  uint64_t bytes_down = 0;
  double train_seconds = 0;
  double transfer_seconds = 0;
  double wait_seconds = 0;
};

// A line of rounds.json: the keys of `dilococtl watch --rounds --json`, and
// `digest`, `fragment` and `at` besides.
std::string RoundJson(const RoundRow& row);
// For people.
std::string RoundLine(const RoundRow& row);

// One thread at a time.
class RoundLog {
 public:
  // Events in their order.
  void Feed(const EventReport& event);
  // Rows that nobody was told yet: a row waits for its evaluation until the
  // next one is there, or, with `all`, not.
  std::vector<RoundRow> Take(bool all);
  const std::vector<RoundRow>& rows() const { return rows_; }

 private:
  struct Totals {
    uint64_t up = 0;
    uint64_t down = 0;
    double train = 0;
    double transfer = 0;
    double wait = 0;
  };
  void Publish(const VersionPublished& fact, const EventReport& event);
  // What has grown since the row before.
  void Measure(const StatusReport& status, RoundRow& row);

  std::vector<RoundRow> rows_;
  size_t told_ = 0;
  std::map<uint32_t, RoundRow> closed_;  // By fragment: its version is to come.
  std::map<uint32_t, uint64_t> versions_;  // By fragment; theta's is their sum.
  Totals before_;
};

}  // namespace diloco::sim

#endif  // WORKER_SIMULATE_ROUND_LOG_H_

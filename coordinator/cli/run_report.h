// The closing summary of a run: what the traffic was against synchronous
// training, and how much of the workers' time went into training. Pure; used
// by `report`.
#ifndef COORDINATOR_CLI_RUN_REPORT_H_
#define COORDINATOR_CLI_RUN_REPORT_H_

#include <cstdint>
#include <string>

#include "diloco/v1/admin.pb.h"
#include "nlohmann/json.hpp"

namespace diloco {

// Synchronous training is ring all-reduce of fp32 gradients at each inner
// step: every worker sends 2 (k - 1) / k x 4 bytes a parameter and receives as
// much. Ours is what the workers counted on the wire, both ways. Steps, bytes
// and times are those of each worker's life, over all its processes.
struct RunReport {
  int workers = 0;           // k: those whose updates were folded.
  uint64_t inner_steps = 0;  // Whose tokens were folded, as the journal says.
  // As the workers count, who begin anew when they start afresh: all below is
  // of these.
  uint64_t counted_steps = 0;
  uint64_t parameters = 0;
  double sent = 0;  // Bytes, all workers.
  double received = 0;
  double synchronous_sent = 0;
  // Synchronous bytes over ours; 0 when there is nothing to compare.
  double ratio_sent = 0;
  double ratio_total = 0;
  double train_seconds = 0;  // Sums over the workers.
  double transfer_seconds = 0;
  double wait_seconds = 0;
  double utilisation = 0;  // Training's share of the three.
};

RunReport MakeRunReport(const v1::StatusResponse& status);
std::string ReportText(const v1::StatusResponse& status,
                       const RunReport& report);
nlohmann::ordered_json ReportJson(const v1::StatusResponse& status,
                                  const RunReport& report);

}  // namespace diloco

#endif  // COORDINATOR_CLI_RUN_REPORT_H_

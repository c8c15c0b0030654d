// The coordinator's metrics, declared together. Moved by CoordinatorImpl as
// facts become durable.
#ifndef COORDINATOR_RUNTIME_COORDINATOR_METRICS_H_
#define COORDINATOR_RUNTIME_COORDINATOR_METRICS_H_

#include <map>
#include <string>

#include "common/metrics/metrics.h"
#include "coordinator/core/state.h"
#include "coordinator/runtime/coordinator.h"

namespace diloco {

// Thread-safe.
class CoordinatorMetrics {
 public:
  explicit CoordinatorMetrics(MetricsRegistry* registry);

  // Gauges from a recovered or changed state; counters are not restored.
  void Restore(const State& state);
  void SetState(const State& state);
  void Count(const Fact& fact);
  void CountProbe(ProbeVerdict::Kind kind);
  void SetWorker(const std::string& worker, const WorkerProgress& progress);
  // Its series end.
  void RemoveWorker(const std::string& worker);

  Counter* const received_bytes;
  Counter* const sent_bytes;
  Counter* const digest_mismatches;
  Counter* const duplicates;
  Counter* const images_passed_over;
  Histogram* const fold_seconds;

 private:
  void SetNorm(const std::string& worker, double figure);

  MetricsRegistry* const registry_;
  Gauge* const round_;
  Gauge* const version_;
  Gauge* const folded_tokens_;
  Gauge* const eval_loss_;
  const std::map<Membership, Gauge*> workers_;
  Gauge* const epoch_;
  Counter* const rounds_folded_;
  Counter* const rounds_void_;
  Counter* const rounds_extended_;
  Counter* const updates_accepted_;
  Counter* const updates_refused_;
  const std::map<Screen, Counter*> screened_;
  Counter* const updates_missing_;
  Counter* const leases_opened_;
  Counter* const leases_late_;
  Counter* const skipped_;
  Gauge* const deadline_;
  const std::map<ProbeVerdict::Kind, Counter*> probes_;
  Counter* const journal_records_;
  Histogram* const round_seconds_;
};

}  // namespace diloco

#endif  // COORDINATOR_RUNTIME_COORDINATOR_METRICS_H_

// A worker's own metrics, declared together; moved by the agent.
#ifndef WORKER_RUNTIME_WORKER_METRICS_H_
#define WORKER_RUNTIME_WORKER_METRICS_H_

#include "common/metrics/metrics.h"

namespace diloco {

struct WorkerMetrics {
  explicit WorkerMetrics(MetricsRegistry* registry)
      : inner_steps(registry->AddCounter("diloco_worker_inner_steps_total",
                                         "Optimiser steps taken.")),
        tokens(registry->AddCounter("diloco_worker_tokens_total",
                                    "Tokens trained on.")),
        skipped(registry->AddCounter(
            "diloco_worker_skipped_steps_total",
            "Steps skipped for a non-finite loss or gradient.",
            {{"reason", "nonfinite"}})),
        rounds(registry->AddCounter("diloco_worker_rounds_total",
                                    "Updates delivered and accepted.")),
        digest_mismatches(registry->AddCounter(
            "diloco_worker_digest_mismatches_total",
            "Times the copy of theta differed from the published digest.")),
        loss(registry->AddGauge("diloco_worker_loss",
                                "Loss of the last step, nats per token.")),
        grad_norm(registry->AddGauge(
            "diloco_worker_grad_norm",
            "Global gradient norm of the last step before clipping.")),
        learning_rate(registry->AddGauge("diloco_worker_learning_rate",
                                         "Learning rate of the last step.")),
        step_seconds(registry->AddHistogram(
            "diloco_worker_step_seconds", "Time of one inner step.",
            {0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100})),
        stall_seconds(registry->AddHistogram(
            "diloco_worker_stall_seconds",
            "How long training stood still for one synchronisation.",
            {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100})) {}

  Counter* const inner_steps;
  Counter* const tokens;
  Counter* const skipped;
  Counter* const rounds;
  Counter* const digest_mismatches;
  Gauge* const loss;
  Gauge* const grad_norm;
  Gauge* const learning_rate;
  Histogram* const step_seconds;
  Histogram* const stall_seconds;
};

}  // namespace diloco

#endif  // WORKER_RUNTIME_WORKER_METRICS_H_

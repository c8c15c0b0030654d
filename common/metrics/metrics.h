// Thin no-throw layer over prometheus-cpp. A component declares its metrics
// together, with help text, beside the code that moves them. Metric objects
// live as long as the registry and are thread-safe.
//
//   Counter* rounds = registry->AddCounter("diloco_coordinator_rounds_total",
//       "Rounds closed, by result.", {{"result", "folded"}});
//   rounds->Increment();
#ifndef COMMON_METRICS_METRICS_H_
#define COMMON_METRICS_METRICS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace diloco {

using Labels = std::map<std::string, std::string>;

class Counter {
 public:
  virtual ~Counter() = default;
  virtual void Increment(double by = 1) = 0;
};
class Gauge {
 public:
  virtual ~Gauge() = default;
  virtual void Set(double value) = 0;
};
class Histogram {
 public:
  virtual ~Histogram() = default;
  virtual void Observe(double value) = 0;
};

// Thread-safe. The same name and labels give the same object. An invalid name
// is a programming error (DILOCO_CHECK).
class MetricsRegistry {
 public:
  MetricsRegistry();
  ~MetricsRegistry();
  Counter* AddCounter(const std::string& name, const std::string& help,
                      const Labels& labels = {});
  Gauge* AddGauge(const std::string& name, const std::string& help,
                  const Labels& labels = {});
  Histogram* AddHistogram(const std::string& name, const std::string& help,
                          const std::vector<double>& bounds,
                          const Labels& labels = {});
  // Removes a gauge, e.g. of a worker that is gone; no-op when unknown.
  void RemoveGauge(const std::string& name, const Labels& labels);
  // The text exposition format 0.0.4.
  std::string Text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Serves /metrics /livez /readyz (and /healthz) over HTTP.
class MetricsServer {
 public:
  // `address` is host:port; port 0 picks one. `not_ready` returns the reason
  // or an empty text; it must not wait. UNAVAILABLE: the address is in use;
  // INVALID_ARGUMENT: it is malformed or not of this machine.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const std::string& address, const MetricsRegistry* registry,
      std::function<std::string()> not_ready);
  virtual ~MetricsServer() = default;
  virtual int port() const = 0;
};

}  // namespace diloco

#endif  // COMMON_METRICS_METRICS_H_

// The registry half of metrics.h, and the only file that sees prometheus-cpp:
// its exceptions (bad names, clashing types) end here as failed checks, because
// names are written in our source and never come from outside.
#include "common/metrics/metrics.h"

#include <exception>
#include <utility>

#include "absl/strings/str_replace.h"
#include "common/base/logging.h"
#include "common/base/mutex.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace diloco {
namespace {

class CounterImpl final : public Counter {
 public:
  explicit CounterImpl(prometheus::Counter* counter) : counter_(counter) {}
  void Increment(double by) override { counter_->Increment(by); }

 private:
  prometheus::Counter* const counter_;
};

class HistogramImpl final : public Histogram {
 public:
  explicit HistogramImpl(prometheus::Histogram* histogram)
      : histogram_(histogram) {}
  void Observe(double value) override { histogram_->Observe(value); }

 private:
  prometheus::Histogram* const histogram_;
};

// Outlives its series: after RemoveGauge a holder of the pointer may still call
// Set, which then does nothing.
class GaugeImpl final : public Gauge {
 public:
  void Set(double value) override {
    MutexLock lock(&mu_);
    if (gauge_ != nullptr) gauge_->Set(value);
  }
  // Returns what was attached before.
  prometheus::Gauge* Attach(prometheus::Gauge* gauge) {
    MutexLock lock(&mu_);
    return std::exchange(gauge_, gauge);
  }
  bool attached() const {
    MutexLock lock(&mu_);
    return gauge_ != nullptr;
  }

 private:
  mutable Mutex mu_;
  prometheus::Gauge* gauge_ ABSL_GUARDED_BY(mu_) = nullptr;
};

// One metric name: the family and our objects by label set.
template <typename Metric, typename Wrapper>
struct FamilyOf {
  prometheus::Family<Metric>* family = nullptr;
  std::map<Labels, std::unique_ptr<Wrapper>> children;
};

// prometheus-cpp writes help texts as they are; the format wants these escaped.
std::string EscapedHelp(const std::string& help) {
  return absl::StrReplaceAll(help, {{"\\", "\\\\"}, {"\n", "\\n"}});
}

template <typename Function>
auto Checked(const std::string& name, Function function) {
  try {
    return function();
  } catch (const std::exception& error) {
    DILOCO_CHECK(false) << "metric " << name << ": " << error.what();
    throw;  // Not reached: the check ends the process.
  }
}

}  // namespace

struct MetricsRegistry::Impl {
  // Returns the family of `name`, registered by `builder` when it is new.
  template <typename Metric, typename Wrapper, typename Builder>
  FamilyOf<Metric, Wrapper>& Find(
      std::map<std::string, FamilyOf<Metric, Wrapper>>& families,
      const std::string& name, const std::string& help, Builder builder) {
    FamilyOf<Metric, Wrapper>& entry = families[name];
    if (entry.family == nullptr) {
      entry.family = Checked(name, [&] {
        return &builder.Name(name).Help(EscapedHelp(help)).Register(registry);
      });
    }
    return entry;
  }

  prometheus::Registry registry;
  Mutex mu;
  std::map<std::string, FamilyOf<prometheus::Counter, CounterImpl>> counters
      ABSL_GUARDED_BY(mu);
  std::map<std::string, FamilyOf<prometheus::Gauge, GaugeImpl>> gauges
      ABSL_GUARDED_BY(mu);
  std::map<std::string, FamilyOf<prometheus::Histogram, HistogramImpl>>
      histograms ABSL_GUARDED_BY(mu);
};

MetricsRegistry::MetricsRegistry() : impl_(std::make_unique<Impl>()) {}
MetricsRegistry::~MetricsRegistry() = default;

Counter* MetricsRegistry::AddCounter(const std::string& name,
                                     const std::string& help,
                                     const Labels& labels) {
  MutexLock lock(&impl_->mu);
  auto& entry =
      impl_->Find(impl_->counters, name, help, prometheus::BuildCounter());
  std::unique_ptr<CounterImpl>& child = entry.children[labels];
  if (child == nullptr) {
    child = std::make_unique<CounterImpl>(
        Checked(name, [&] { return &entry.family->Add(labels); }));
  }
  return child.get();
}

Gauge* MetricsRegistry::AddGauge(const std::string& name,
                                 const std::string& help,
                                 const Labels& labels) {
  MutexLock lock(&impl_->mu);
  auto& entry =
      impl_->Find(impl_->gauges, name, help, prometheus::BuildGauge());
  std::unique_ptr<GaugeImpl>& child = entry.children[labels];
  if (child == nullptr) child = std::make_unique<GaugeImpl>();
  if (!child->attached()) {
    child->Attach(Checked(name, [&] { return &entry.family->Add(labels); }));
  }
  return child.get();
}

Histogram* MetricsRegistry::AddHistogram(const std::string& name,
                                         const std::string& help,
                                         const std::vector<double>& bounds,
                                         const Labels& labels) {
  MutexLock lock(&impl_->mu);
  auto& entry =
      impl_->Find(impl_->histograms, name, help, prometheus::BuildHistogram());
  std::unique_ptr<HistogramImpl>& child = entry.children[labels];
  if (child == nullptr) {
    child = std::make_unique<HistogramImpl>(Checked(name, [&] {
      return &entry.family->Add(
          labels, prometheus::Histogram::BucketBoundaries(bounds));
    }));
  }
  return child.get();
}

void MetricsRegistry::RemoveGauge(const std::string& name,
                                  const Labels& labels) {
  MutexLock lock(&impl_->mu);
  const auto family = impl_->gauges.find(name);
  if (family == impl_->gauges.end()) return;
  const auto child = family->second.children.find(labels);
  if (child == family->second.children.end()) return;
  prometheus::Gauge* const gauge = child->second->Attach(nullptr);
  if (gauge != nullptr) family->second.family->Remove(gauge);
}

std::string MetricsRegistry::Text() const {
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace diloco

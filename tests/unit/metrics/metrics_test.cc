#include "common/metrics/metrics.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "tests/support/catch.h"

namespace diloco {
namespace {

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// One metric of each kind, with what escapes badly in help and labels.
void Fill(MetricsRegistry* registry) {
  registry
      ->AddCounter("diloco_test_rounds_total", "Rounds closed, by result.",
                   {{"result", "folded"}})
      ->Increment();
  registry->AddCounter("diloco_test_rounds_total", "Rounds closed, by result.",
                       {{"result", "void"}});
  registry
      ->AddGauge("diloco_test_disk_free_bytes",
                 "Free bytes, \\ and \n escaped.", {{"path", "a\"b\\c\nd"}})
      ->Set(1.5e12);
  Histogram* seconds = registry->AddHistogram(
      "diloco_test_fsync_seconds", "Time of an fsync.", {0.001, 0.01, 0.1});
  for (double value : {0.0005, 0.05, 7.0}) seconds->Observe(value);
}

TEST_CASE("the same name and labels give the same object") {
  MetricsRegistry registry;
  Counter* a = registry.AddCounter("diloco_test_a_total", "A.", {{"x", "1"}});
  REQUIRE(registry.AddCounter("diloco_test_a_total", "A.", {{"x", "1"}}) == a);
  REQUIRE(registry.AddCounter("diloco_test_a_total", "A.", {{"x", "2"}}) != a);
}

TEST_CASE("series exist from the start, at zero") {
  MetricsRegistry registry;
  Fill(&registry);
  REQUIRE(
      registry.Text().find("diloco_test_rounds_total{result=\"void\"} 0\n") !=
      std::string::npos);
}

TEST_CASE(
    "the exposition has no duplicate sample, ends with a line feed and "
    "closes its histograms") {
  MetricsRegistry registry;
  Fill(&registry);
  const std::string text = registry.Text();
  REQUIRE(text.back() == '\n');
  REQUIRE(text.find('\r') == std::string::npos);
  std::set<std::string> seen;
  for (const std::string& line : Lines(text)) {
    if (line.rfind("#", 0) == 0) continue;
    REQUIRE(seen.insert(line.substr(0, line.rfind(' '))).second);
  }
  REQUIRE(text.find("diloco_test_fsync_seconds_bucket{le=\"+Inf\"} 3\n") !=
          std::string::npos);
  REQUIRE(text.find("diloco_test_fsync_seconds_count 3\n") !=
          std::string::npos);
  REQUIRE(text.find("path=\"a\\\"b\\\\c\\nd\"") != std::string::npos);
}

TEST_CASE(
    "a removed gauge is gone, its holder does no harm, and it can return") {
  MetricsRegistry registry;
  const Labels labels = {{"worker", "a"}};
  Gauge* gauge = registry.AddGauge("diloco_test_loss", "Loss.", labels);
  gauge->Set(3);
  registry.RemoveGauge("diloco_test_loss", labels);
  gauge->Set(4);
  REQUIRE(registry.Text().find("worker=\"a\"") == std::string::npos);
  registry.AddGauge("diloco_test_loss", "Loss.", labels)->Set(5);
  REQUIRE(registry.Text().find("diloco_test_loss{worker=\"a\"} 5") !=
          std::string::npos);
  registry.RemoveGauge("diloco_test_other", labels);
}

TEST_CASE("promtool accepts the exposition") {
  if (std::system("command -v promtool >/dev/null 2>&1") != 0) {
    WARN("promtool is not installed: not checked");
    return;
  }
  MetricsRegistry registry;
  Fill(&registry);
  FILE* tool = ::popen("promtool check metrics", "w");
  REQUIRE(tool != nullptr);
  const std::string text = registry.Text();
  REQUIRE(std::fwrite(text.data(), 1, text.size(), tool) == text.size());
  REQUIRE(::pclose(tool) == 0);
}

}  // namespace
}  // namespace diloco

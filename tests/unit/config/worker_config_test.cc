// worker.yaml: what is local, and nothing else.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/support/catch.h"
#include "worker/config.h"

namespace diloco {
namespace {

const char kWorkerBase[] = "coordinator: host:7600\nname: w1\nshard: a.bin\n";

std::vector<std::string> WorkerErrors(const std::string& text) {
  const auto loaded = ParseWorkerConfig("w.yaml", text);
  if (loaded.ok()) return {};
  return absl::StrSplit(loaded.status().message(), '\n');
}

TEST_CASE("a worker's file gives its values, with paths relative to itself") {
  const auto loaded = ParseWorkerConfig(
      "/etc/diloco/w.yaml",
      absl::StrCat(
          kWorkerBase,
          "run: kjv\nlineage: 000102030405060708090a0b0c0d0e0f\n"
          "threads: 2\ndata_dir: data\nscratch: /tmp/s\n"
          "micro_batch: 4\ncheckpoint: {every: 30s}\nconnect_timeout: 7s\n"
          "drain_timeout: 90s\n"
          "bulk: {max_rate: 1.5MB/s}\n"
          "listen: {metrics: localhost:0}\n"));
  CAPTURE(loaded.status().ToString());
  REQUIRE(loaded.ok());
  const WorkerConfig& c = loaded->config;
  CHECK(c.coordinator == "host:7600");
  CHECK(c.name == "w1");
  CHECK(c.run == "kjv");
  CHECK(c.lineage.size() == 16);
  CHECK(c.lineage[15] == 15);
  CHECK(c.threads == 2);
  CHECK(c.data_dir == "/etc/diloco/data");
  CHECK(c.shard == "/etc/diloco/data/a.bin");
  CHECK(c.scratch == "/tmp/s");
  CHECK(c.micro_batch == 4);
  CHECK(c.connect_timeout == absl::Seconds(7));
  CHECK(c.checkpoint_every == absl::Seconds(30));
  CHECK(c.drain_timeout == absl::Seconds(90));
  CHECK(c.bulk_max_rate == 1'500'000);
  CHECK(c.metrics == "localhost:0");
}

TEST_CASE("the smallest worker file works in its own directory") {
  const auto loaded = ParseWorkerConfig("conf/w.yaml", kWorkerBase);
  REQUIRE(loaded.ok());
  CHECK(loaded->config.shard == "conf/a.bin");
  CHECK(loaded->config.scratch == "conf/scratch");
  CHECK(loaded->config.threads == 0);
  CHECK(loaded->config.metrics.empty());
  REQUIRE(ParseWorkerConfig("w.yaml", kWorkerBase)->config.shard == "a.bin");
  REQUIRE(ParseWorkerConfig("w.yaml", kWorkerBase)->config.scratch ==
          "scratch");
}

TEST_CASE("C7.4 run settings in a worker's file say where they belong") {
  for (const char* line :
       {"H: 50", "lr: 1e-3", "sync: {interval: 50}", "train: {tokens: 1M}",
        "model: {layers: 4}", "outer: {lr: 0.7}", "batch_tokens: 1024",
        "seed: 3", "seq_len: 128"}) {
    INFO(line);
    const std::vector<std::string> errors =
        WorkerErrors(absl::StrCat(kWorkerBase, line, "\n"));
    REQUIRE(errors.size() == 1);
    CAPTURE(errors[0]);
    CHECK(absl::StartsWith(errors[0], "w.yaml:4:1: "));
    CHECK(
        absl::StrContains(errors[0], "belongs in the coordinator's run.yaml"));
  }
}

TEST_CASE("C4.4 required keys, names and types of a worker's file") {
  CHECK(WorkerErrors("name: w\n").size() == 2);
  CHECK(WorkerErrors("").size() == 4);
  struct Case {
    const char* line;
    const char* words;
  };
  const Case cases[] = {
      {"device: cuda", "not available yet"},
      {"device: tpu", "expected cpu"},
      {"threads: 0", "from 1 to 1024, or auto"},
      {"dtype: uint32", "expected uint16"},
      {"micro_batch: -1", "must not be negative"},
      {"checkpoint: {every: 5}", "needs a unit"},
      {"bulk: {max_rate: 10}", "per second"},
      {"bulk: {max_rate: 1KiB/s}", "from 64KiB/s"},
      {"lineage: abc", "32 hexadecimal digits"},
      {"certificates: x", "not available yet"},
      {"listen: {metrics: \"[::1]:7601\"}", "over IPv4 only"},
      {"thread: 2", "nearest known one is threads"},
      {"scratch:", "got no value"},
  };
  for (const Case& c : cases) {
    INFO(c.line);
    const std::vector<std::string> errors =
        WorkerErrors(absl::StrCat(kWorkerBase, c.line, "\n"));
    REQUIRE(errors.size() == 1);
    CAPTURE(errors[0]);
    CHECK(absl::StartsWith(errors[0], "w.yaml:4:"));
    CHECK(absl::StrContains(errors[0], c.words));
  }
}

TEST_CASE("printing a worker's configuration reads back to the same") {
  for (const char* path : {"w.yaml", "/etc/w.yaml", "conf/w.yaml"}) {
    const auto loaded = ParseWorkerConfig(
        path,
        absl::StrCat(kWorkerBase, "run: kjv\nbulk: {max_rate: 3MiB/s}\n"));
    REQUIRE(loaded.ok());
    const std::string printed = PrintWorkerConfig(loaded->config);
    const auto again = ParseWorkerConfig("w.yaml", printed);
    CAPTURE(printed, again.status().ToString());
    REQUIRE(again.ok());
    CHECK(PrintWorkerConfig(again->config) == printed);
    CHECK(again->config.shard == loaded->config.shard);
  }
}

}  // namespace
}  // namespace diloco

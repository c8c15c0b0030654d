// What `dilococtl set` may do to a run's settings.
#include "absl/strings/match.h"
#include "coordinator/config.h"
#include "tests/support/catch.h"
#include "tests/support/fault_file_system.h"

namespace diloco {
namespace {

using Code = absl::StatusCode;

RunConfig Base() {
  FaultFileSystem fs;
  const auto loaded = ParseRunConfig(
      &fs, "run.yaml",
      "run: {name: kjv}\n"
      "model: {layers: 2, hidden: 64, heads: 4, ffn: 172, vocab: 512}\n"
      "data: {seq_len: 64}\n"
      "train: {tokens: 100M, batch_tokens: 512}\n");
  REQUIRE(loaded.ok());
  return loaded->config;
}

void Refused(const std::string& key, const std::string& value, Code code,
             const std::string& words) {
  const absl::Status status = ChangeSettings(Base(), {{key, value}}).status();
  INFO(status.ToString());
  CHECK(status.code() == code);
  CHECK(absl::StrContains(status.message(), words));
}

TEST_CASE("a value is written as in the run file") {
  const auto changed = ChangeSettings(
      Base(), {{"train.tokens", "300M"}, {"sync.interval", "20"}});
  REQUIRE(changed.ok());
  CHECK(changed->train.tokens == 300'000'000);
  CHECK(changed->sync.interval == 20);
  CHECK(MakePolicy(*changed).interval == 20);
  RunConfig same = *changed;
  same.train.tokens = 100'000'000;
  same.sync.interval = 100;
  CHECK(SettingsText(same) == SettingsText(Base()));
}

TEST_CASE("what the settings text prints can be assigned again") {
  const RunConfig base = Base();
  std::map<std::string, std::string> values;
  for (const ChangeableSetting& setting : ChangeableSettings()) {
    const std::string start = absl::StrCat("\n", setting.key, " = ");
    const std::string text = absl::StrCat("\n", SettingsText(base));
    const size_t at = text.find(start);
    if (at == std::string::npos) continue;
    const size_t begin = at + start.size();
    values[setting.key] = text.substr(begin, text.find('\n', begin) - begin);
  }
  values.erase("eval.shard");
  CHECK(values.size() > 20);
  const auto again = ChangeSettings(base, values);
  INFO(again.status().ToString());
  REQUIRE(again.ok());
  CHECK(SettingsText(*again) == SettingsText(base));
}

TEST_CASE("unknown, fixed and local keys are refused with the reason") {
  Refused("train.token", "5M", Code::kNotFound, "did you mean train.tokens?");
  Refused("model.layers", "3", Code::kFailedPrecondition,
          "model.layers is fixed: it is part of what the run is");
  Refused("run.seed", "3", Code::kFailedPrecondition, "start a new run");
  Refused("listen.control", "0.0.0.0:1", Code::kFailedPrecondition,
          "change the run file and restart");
  Refused("eval.shard", "x.bin", Code::kFailedPrecondition, "--accept");
  Refused("export.every", "3", Code::kFailedPrecondition, "no effect");
}

TEST_CASE("bad values and those that do not go with others are refused") {
  Refused("sync.interval", "0", Code::kInvalidArgument, "sync.interval: got 0");
  Refused("outer.lr", "11", Code::kInvalidArgument, "up to 10");
  Refused("sync.interval", "", Code::kInvalidArgument, "expected");
  Refused("sync.interval", "5\nouter.lr: 1", Code::kInvalidArgument,
          "expected");
  Refused("train.batch_tokens", "500", Code::kInvalidArgument,
          "no multiple of data.seq_len");
  Refused("train.schedule.warmup_tokens", "90M", Code::kInvalidArgument,
          "longer than the run");
  Refused("sync.rounds_first", "3", Code::kInvalidArgument, "go together");
  CHECK(ChangeSettings(
            Base(), {{"sync.rounds_first", "3"}, {"sync.interval_first", "10"}})
            .ok());
}

}  // namespace
}  // namespace diloco

// Settings that change in mid-run: the real coordinator over restarts.
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/component/coordinator/test_run.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

using Code = absl::StatusCode;

// A run file of a few keys, and what they turn into.
SettingsView ViewOf(const TestRun& run, const SettingValues& values) {
  SettingsView view;
  view.policy = run.options.policy;
  view.run = run.options.settings;
  for (const auto& [key, value] : values) {
    absl::StrAppend(&view.text, key, " = ", value, "\n");
  }
  uint64_t number = 0;
  REQUIRE(absl::SimpleAtoi(values.at("train.tokens"), &number));
  view.policy.train_tokens = view.run.train.tokens = number;
  REQUIRE(absl::SimpleAtoi(values.at("sync.interval"), &number));
  view.policy.interval = static_cast<uint32_t>(number);
  REQUIRE(absl::SimpleAtod(values.at("outer.lr"), &view.policy.outer_lr));
  return view;
}

SettingValues RunFile() {
  return {{"model.layers", "2"},
          {"outer.lr", "0.5"},
          {"sync.interval", "5"},
          {"train.tokens", "1000000"}};
}

// Makes `file` the run file of the next start.
void UseRunFile(TestRun& run, const SettingValues& file) {
  const SettingsView view = ViewOf(run, file);
  run.options.policy = view.policy;
  run.options.settings = view.run;
  run.options.settings_text = view.text;
  run.options.settings_digest = Sha256(view.text);
  run.options.changes.changeable = {
      {"outer.lr", false}, {"sync.interval", false}, {"train.tokens", false}};
  run.options.changes.with =
      [&run,
       file](const SettingValues& changed) -> absl::StatusOr<SettingsView> {
    SettingValues all = file;
    for (const auto& [key, value] : changed) {
      if (all.count(key) == 0) return absl::NotFoundError(key);
      all[key] = value;
    }
    return ViewOf(run, all);
  };
}

absl::StatusOr<SettingsChanged> Set(TestRun& run, const std::string& key,
                                    const std::string& value) {
  return run.Change({{{key, value}}, 0, "ann@desk", "a reason"});
}

uint32_t StepsOf(TestRun& run) {
  return run.View("a")->view.leases.at(0).lease.steps;
}

TEST_CASE("a round keeps the settings that it opened under, over restarts") {
  TestRun run(2);
  UseRunFile(run, RunFile());
  REQUIRE(run.Start().ok());
  run.JoinAll();
  REQUIRE(StepsOf(run) == 5);
  const auto changed = Set(run, "sync.interval", "7");
  REQUIRE(changed.ok());
  CHECK(changed->from_round == 2);
  CHECK(changed->by == "ann@desk");
  REQUIRE(Set(run, "outer.lr", "0.25").ok());
  CHECK(StepsOf(run) == 5);
  const Digest digest = run.Status().settings_digest;
  CHECK(run.View("a")->settings->policy.interval == 5);
  // At any step: with the change waiting, with an update in, between rounds.
  const auto restart = [&] {
    run.End();
    REQUIRE(run.Start().ok());
    CHECK(run.Status().settings_revision == 2);
    CHECK(run.Status().settings_digest == digest);
  };
  restart();
  CHECK(StepsOf(run) == 5);
  CHECK(run.View("a")->settings->policy.interval == 5);
  REQUIRE(run.Deliver("a", run.NextUpdate("a")).ok());
  restart();
  CHECK(run.View("b")->settings->policy.outer_lr == 0.5);
  REQUIRE(run.Deliver("b", run.NextUpdate("b")).ok());
  REQUIRE(run.AwaitVersion(1).ok());
  restart();
  CHECK(StepsOf(run) == 7);
  CHECK(run.View("a")->settings->policy.interval == 7);
  run.DeliverAll();
  REQUIRE(run.AwaitVersion(2).ok());
  std::vector<double> rates;
  for (const EventReport& event : run.Events()) {
    if (const auto* closed = std::get_if<RoundClosed>(&event.fact)) {
      rates.push_back(closed->outer_lr);
    }
  }
  CHECK(rates == std::vector<double>{0.5, 0.25});
}

TEST_CASE("an upgrade that knows more settings goes on with an old run") {
  TestRun run(1);
  UseRunFile(run, RunFile());
  REQUIRE(run.Start().ok());
  run.JoinAll();
  const Digest created = run.Status().settings_digest;
  run.End();
  SettingValues upgraded = RunFile();
  upgraded["sync.fragments"] = "1";
  upgraded["sync.quorum"] = "all";
  UseRunFile(run, upgraded);
  run.options.changes.changeable["sync.quorum"] = false;
  run.options.changes.defaults = {{"sync.fragments", "1"},
                                  {"sync.quorum", "all"}};
  // Without --accept, and again.
  for (int i = 0; i < 2; ++i) {
    REQUIRE(run.Start().ok());
    // Workers' scratch directories know the run by it.
    CHECK(run.Status().settings_digest == created);
    REQUIRE(run.JoinWith("a", created).ok());
    run.End();
  }
  // It cannot become another run.
  upgraded["sync.fragments"] = "2";
  UseRunFile(run, upgraded);
  const absl::Status refused = run.Start();
  CHECK(refused.code() == Code::kFailedPrecondition);
  CHECK(absl::StrContains(refused.message(),
                          "sync.fragments is 2 in the run file, not set"));
}

TEST_CASE("what cannot be set is refused, and nothing is recorded") {
  TestRun run(1);
  UseRunFile(run, RunFile());
  REQUIRE(run.Start().ok());
  CHECK(Set(run, "nothing", "1").status().code() == Code::kNotFound);
  const absl::Status same = Set(run, "sync.interval", "5").status();
  CHECK(same.code() == Code::kAlreadyExists);
  CHECK(same.message() == "sync.interval is 5 already");
  CHECK(run.Status().settings_revision == 0);
}

TEST_CASE("the journal wins over a run file that was left as it was") {
  TestRun run(1);
  UseRunFile(run, RunFile());
  REQUIRE(run.Start().ok());
  REQUIRE(Set(run, "train.tokens", "3000000").ok());
  run.End();
  REQUIRE(run.Start().ok());
  CHECK(run.Status().train_tokens == 3'000'000);
  // The operator writes it into the run file, too: no question.
  run.End();
  SettingValues file = RunFile();
  file["train.tokens"] = "3000000";
  UseRunFile(run, file);
  REQUIRE(run.Start().ok());
  REQUIRE(Set(run, "train.tokens", "4000000").ok());
  run.End();
  // Left as it was at the last start, though it is not what the run began with.
  REQUIRE(run.Start().ok());
  CHECK(run.Status().train_tokens == 4'000'000);
}

TEST_CASE("an edited run file is shown and refused until it is accepted") {
  TestRun run(2);
  UseRunFile(run, RunFile());
  REQUIRE(run.Start().ok());
  run.JoinAll();
  REQUIRE(Set(run, "sync.interval", "7").ok());
  run.End();
  SettingValues file = RunFile();
  file["outer.lr"] = "0.125";
  UseRunFile(run, file);
  const absl::Status refused = run.Start();
  INFO(refused.ToString());
  CHECK(refused.code() == Code::kFailedPrecondition);
  CHECK(absl::StrContains(
      refused.message(),
      "outer.lr is 0.125 in the run file, 0.5 in the state directory"));
  CHECK(absl::StrContains(refused.message(), "--accept"));
  CHECK_FALSE(absl::StrContains(refused.message(), "sync.interval"));
  run.options.accept_edits = true;
  REQUIRE(run.Start().ok());
  run.options.accept_edits = false;
  run.End();
  REQUIRE(run.Start().ok());
  run.DeliverAll();
  REQUIRE(run.AwaitVersion(1).ok());
  const auto view = run.View("a");
  CHECK(view->settings->policy.outer_lr == 0.125);
  CHECK(view->settings->policy.interval == 7);  // `set` stays.
  CHECK(run.Status().settings_revision == 2);

  SECTION("a fixed key is refused whatever is accepted") {
    run.End();
    file["model.layers"] = "3";
    UseRunFile(run, file);
    run.options.accept_edits = true;
    const absl::Status fixed = run.Start();
    CHECK(absl::StrContains(
        fixed.message(),
        "model.layers is 3 in the run file, 2 in the state directory"));
    CHECK(absl::StrContains(fixed.message(), "Set the run file back"));
  }
}

TEST_CASE("a worker comes back with the settings of any time of the run") {
  TestRun run(1);
  UseRunFile(run, RunFile());
  REQUIRE(run.Start().ok());
  const Digest first = run.Status().settings_digest;
  REQUIRE(Set(run, "outer.lr", "0.25").ok());
  const Digest second = run.Status().settings_digest;
  CHECK(first != second);
  CHECK(run.JoinWith("a", first).ok());
  CHECK(run.JoinWith("a", second).ok());
  CHECK(run.JoinWith("a", Sha256("other")).code() == Code::kFailedPrecondition);
}

TEST_CASE("a decay begins with the next round and ends the run") {
  State state;
  state.fragments.resize(1);
  state.fragments[0].folded_tokens = 600;
  SettingsView view;
  view.policy.train_tokens = 2000;
  view.run.train.decay_share = 0.2;
  Settings settings(view, {});
  // 600 of 2000 tokens: 200 more lead to 800, so that the decay is a quarter.
  const auto decay = settings.PlanDecay(state, 200);
  REQUIRE(decay.ok());
  CHECK(decay->at("train.tokens") == "800");
  CHECK(decay->at("train.schedule.decay_share") == "0.25");
  state.fragments[0].folded_tokens = 1700;
  CHECK(absl::StrContains(settings.PlanDecay(state, 200).status().message(),
                          "the decay has begun already"));
  state.fragments[0].folded_tokens = 600;
  view.run.train.schedule = ScheduleShape::kCosine;
  CHECK_FALSE(Settings(view, {}).PlanDecay(state, 200).ok());
}

}  // namespace
}  // namespace diloco

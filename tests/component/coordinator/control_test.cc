// What the control plane and the operator get, through the whole coordinator.
#include <cmath>
#include <future>
#include <limits>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/component/coordinator/test_run.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

absl::Status Beat(TestRun& run, const std::string& worker,
                  const WorkerProgress& progress) {
  std::promise<absl::Status> answer;
  run.coordinator->Beat(run.sessions[worker], Fencing(), progress,
                        [&](const absl::StatusOr<uint64_t>& revision) {
                          answer.set_value(revision.status());
                        });
  return answer.get_future().get();
}

absl::Status ReportEval(TestRun& run, const std::string& worker,
                        double loss_sum) {
  const absl::StatusOr<ViewOutcome> view = run.View(worker);
  if (!view.ok()) return view.status();
  EvalReportEvent report;
  report.version = view->view.evals.at(0).version;
  report.slice = view->view.evals.at(0).slice;
  report.loss_sum = loss_sum;
  report.tokens = 10;
  std::promise<absl::Status> answer;
  run.coordinator->ReportEval(
      run.sessions[worker], Fencing(), report,
      [&](const absl::Status& status) { answer.set_value(status); });
  return answer.get_future().get();
}

absl::Status Leave(TestRun& run, const std::string& worker) {
  std::promise<absl::Status> answer;
  run.coordinator->Leave(
      run.sessions[worker], Fencing(), "test",
      [&](const absl::Status& status) { answer.set_value(status); });
  return answer.get_future().get();
}

std::vector<EventReport> Events(TestRun& run) {
  std::promise<std::vector<EventReport>> events;
  run.coordinator->GetEvents(
      0, absl::ZeroDuration(), [&](absl::StatusOr<EventsOutcome> outcome) {
        events.set_value(outcome.ok() ? outcome->events
                                      : std::vector<EventReport>());
      });
  return events.get_future().get();
}

bool HasLine(TestRun& run, const std::string& line) {
  return absl::StrContains(run.metrics->Text(), absl::StrCat(line, "\n"));
}

TEST_CASE("mistaken measurements of a beat do not move the deadline") {
  TestRun run(2);
  run.options.policy.deadline.reset();
  REQUIRE(run.Start().ok());
  run.JoinAll();
  CHECK(run.Status().fragments[0].deadline == absl::Minutes(10));
  WorkerProgress progress;
  for (const double seconds :
       {3.0, -1.0, 0.0, 1e300, std::numeric_limits<double>::quiet_NaN(),
        std::numeric_limits<double>::infinity()}) {
    progress.step_seconds = seconds;
    REQUIRE(Beat(run, "a", progress).ok());
  }
  progress.step_seconds = 1;
  REQUIRE(Beat(run, "b", progress).ok());
  run.DeliverAll();
  REQUIRE(run.AwaitVersion(1).ok());
  // 1.5 x 5 steps of 3 s.
  CHECK(run.Status().fragments[0].deadline == absl::Milliseconds(22500));
}

TEST_CASE("a diverged model's evaluation completes and is reported") {
  TestRun run(2);
  run.options.policy.eval_every = 1;
  run.options.policy.eval_windows = 4;
  REQUIRE(run.Start().ok());
  run.JoinAll();
  REQUIRE(ReportEval(run, "a", std::nan("")).ok());
  CHECK_FALSE(run.Status().eval.has_value());
  REQUIRE(ReportEval(run, "b", 20.0).ok());
  REQUIRE(run.Status().eval.has_value());
  CHECK(std::isnan(run.Status().eval->loss));
  CHECK(run.View("a")->view.evals.empty());
}

TEST_CASE("only the report that completes an evaluation carries the status") {
  TestRun run(2);
  run.options.policy.eval_every = 1;
  run.options.policy.eval_windows = 4;
  REQUIRE(run.Start().ok());
  run.JoinAll();
  REQUIRE(ReportEval(run, "a", 30.0).ok());
  REQUIRE(ReportEval(run, "b", 20.0).ok());
  int reports = 0;
  for (const EventReport& event : Events(run)) {
    if (!std::holds_alternative<EvalReported>(event.fact)) continue;
    ++reports;
    CHECK(event.status.has_value() == (reports == 2));
    if (event.status.has_value()) CHECK(event.status->eval->loss == 2.5);
  }
  CHECK(reports == 2);
  CHECK(HasLine(run, "diloco_coordinator_eval_loss 2.5"));
}

TEST_CASE("the series of a worker end with it, and the counts follow") {
  TestRun run(2);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  WorkerProgress progress;
  progress.inner_steps = 7;
  for (const std::string& worker : run.workers) {
    REQUIRE(Beat(run, worker, progress).ok());
  }
  CHECK(HasLine(run, "diloco_worker_inner_steps{worker=\"b\"} 7"));
  CHECK(HasLine(run, "diloco_coordinator_workers{state=\"active\"} 2"));
  REQUIRE(Leave(run, "b").ok());
  CHECK(HasLine(run, "diloco_coordinator_workers{state=\"active\"} 1"));
  CHECK(HasLine(run, "diloco_coordinator_workers{state=\"left\"} 1"));
  CHECK_FALSE(absl::StrContains(run.metrics->Text(), "worker=\"b\""));
  CHECK(HasLine(run, "diloco_worker_inner_steps{worker=\"a\"} 7"));
  // A beat that was under way does not bring them back; what it said stays in
  // the status, for the closing report.
  Beat(run, "b", progress).IgnoreError();
  CHECK_FALSE(absl::StrContains(run.metrics->Text(), "worker=\"b\""));
  CHECK(run.Status().workers[1].progress.inner_steps == 7);
}

TEST_CASE("a changed setting is refused by its name, with both values") {
  TestRun run(1);
  run.options.settings_text = "outer.lr = 0.7\nsync.interval = 100\n";
  run.options.settings_digest = Sha256(run.options.settings_text);
  REQUIRE(run.Start().ok());
  run.End();
  run.options.settings_text =
      "eval.every = 1 round\nouter.lr = 0.7\nsync.interval = 50\n";
  run.options.settings_digest = Sha256(run.options.settings_text);
  const absl::Status refused = run.Start();
  INFO(refused.ToString());
  CHECK(refused.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(absl::StrContains(
      refused.message(),
      "eval.every is 1 round in the run file, not set in the state directory; "
      "sync.interval is 50 in the run file, 100 in the state directory"));
  CHECK_FALSE(absl::StrContains(refused.message(), "outer.lr"));
  CHECK(absl::StrContains(refused.message(), "Set the run file back"));
}

TEST_CASE("events from before the start tell tokens and evaluations again") {
  TestRun run(2);
  run.options.policy.eval_every = 1;
  run.options.policy.eval_windows = 4;
  run.options.bytes_per_token = 3.5;
  REQUIRE(run.Start().ok());
  run.JoinAll();
  REQUIRE(ReportEval(run, "a", 30.0).ok());
  REQUIRE(ReportEval(run, "b", 20.0).ok());
  run.DeliverAll();
  REQUIRE(run.AwaitVersion(1).ok());
  const std::vector<EventReport> before = Events(run);
  run.End();
  REQUIRE(run.Start().ok());
  std::map<uint64_t, EventReport> after;
  for (const EventReport& event : Events(run)) after[event.sequence] = event;
  int told = 0;
  for (const EventReport& event : before) {
    INFO("event " << event.sequence);
    const std::optional<StatusReport>& status = event.status;
    const std::optional<StatusReport>& again = after.at(event.sequence).status;
    REQUIRE(again.has_value() == status.has_value());
    if (!status.has_value()) continue;
    ++told;
    CHECK(again->folded_tokens == status->folded_tokens);
    CHECK(again->train_tokens == status->train_tokens);
    CHECK(again->eval == status->eval);
    CHECK(again->bytes_per_token == 3.5);
  }
  CHECK(told == 2);
}

TEST_CASE("events from before the start have no time, later ones do") {
  TestRun run(1);
  REQUIRE(run.Start().ok());
  run.End();
  REQUIRE(run.Start().ok());
  run.JoinAll();
  const std::vector<EventReport> events = Events(run);
  REQUIRE(events.size() > 2);
  CHECK_FALSE(events.front().wall_time.has_value());
  CHECK(events.back().wall_time.has_value());
}

}  // namespace
}  // namespace diloco

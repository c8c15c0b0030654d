#include "coordinator/cli/run_report.h"

#include "tests/support/catch.h"

namespace diloco {
namespace {

v1::StatusResponse TwoWorkers() {
  v1::StatusResponse status;
  status.set_parameters(1000);
  for (const char* name : {"a", "b"}) {
    auto* worker = status.add_workers();
    worker->set_name(name);
    worker->set_rounds_folded(3);
    auto* beat = worker->mutable_progress();
    beat->set_inner_steps(50);
    beat->set_bytes_sent(4000);
    beat->set_bytes_received(12000);
    beat->set_train_seconds(9);
    beat->set_transfer_seconds(0.25);
    beat->set_wait_seconds(0.75);
  }
  return status;
}

TEST_CASE("synchronous traffic is ring all-reduce of fp32 at each inner step") {
  const RunReport report = MakeRunReport(TwoWorkers());
  // 100 steps x 2 (k - 1) / k x 4 bytes x 1000 parameters with k = 2.
  CHECK(report.synchronous_sent == 400000.0);
  CHECK(report.ratio_sent == 50.0);
  CHECK(report.ratio_total == 25.0);
  CHECK(report.utilisation == Approx(0.9));
}

TEST_CASE("a worker whose updates were never folded is not counted") {
  v1::StatusResponse status = TwoWorkers();
  status.add_workers()->mutable_progress()->set_bytes_sent(1000000);
  const RunReport report = MakeRunReport(status);
  CHECK(report.workers == 2);
  CHECK(report.sent == 8000.0);
}

TEST_CASE("steps are the run's, bytes those of the workers' lives") {
  v1::StatusResponse status = TwoWorkers();
  status.set_batch_tokens(100);
  status.set_folded_tokens(10000);
  CHECK_THAT(ReportText(status, MakeRunReport(status)),
             !Catch::Contains("counted over"));
  // A worker that has started afresh counts from there.
  status.mutable_workers(0)->mutable_progress()->set_inner_steps(10);
  const RunReport report = MakeRunReport(status);
  CHECK(report.inner_steps == 100);
  CHECK(report.counted_steps == 60);
  CHECK(report.synchronous_sent == 240000.0);
  CHECK_THAT(ReportText(status, report),
             Catch::Contains("100 inner steps in all") &&
                 Catch::Contains("counted over 60 steps"));
}

TEST_CASE("one worker alone has nothing to compare with") {
  v1::StatusResponse status = TwoWorkers();
  status.mutable_workers()->RemoveLast();
  const RunReport report = MakeRunReport(status);
  CHECK(report.synchronous_sent == 0);
  CHECK(report.ratio_sent == 0);
  CHECK_THAT(ReportText(status, report), !Catch::Contains("fewer bytes"));
}

TEST_CASE("a run without any beat is reported without dividing by zero") {
  const v1::StatusResponse status;
  const RunReport report = MakeRunReport(status);
  CHECK(report.utilisation == 0);
  CHECK(ReportJson(status, report)["ratio_total"] == 0.0);
}

}  // namespace
}  // namespace diloco

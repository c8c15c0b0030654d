#include <string>
#include <thread>

#include "common/rpc/channel.h"
#include "common/rpc/status_codec.h"
#include "diloco/v1/control.grpc.pb.h"
#include "tests/component/service/service_fixture.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

// A stub past the port, for requests that our worker never sends.
struct RawControl {
  explicit RawControl(const ServiceFixture& fixture)
      : stub(v1::Control::NewStub(
            MakeChannel(absl::StrCat("127.0.0.1:", fixture.server->port()),
                        ChannelKind::kControl))) {}

  static v1::JoinRequest JoinRequest() {
    v1::JoinRequest request;
    request.set_worker("a");
    request.set_attempt(std::string(16, 'A'));
    request.mutable_protocol()->set_min(1);
    request.mutable_protocol()->set_max(1);
    request.set_build("test");
    return request;
  }
  absl::Status Join(const v1::JoinRequest& request) {
    grpc::ClientContext context;
    SetTimeout(&context, absl::Seconds(30));
    return FromGrpcStatus(stub->Join(&context, request, &joined));
  }

  std::unique_ptr<v1::Control::Stub> stub;
  v1::JoinResponse joined;
};

TEST_CASE("a worker that joins gets its session and the run's settings") {
  ServiceFixture fixture;
  const auto reply = fixture.Join();
  REQUIRE(reply.ok());
  REQUIRE(reply->session.size() == 16);
  REQUIRE(reply->settings == fixture.fake.options().settings);
  REQUIRE(reply->settings_digest == Sha256("settings"));
  REQUIRE(reply->fencing == fixture.fake.fencing());
  REQUIRE(reply->lease == absl::Seconds(30));
  REQUIRE(reply->beat_every == absl::Seconds(2));
  const JoinEvent event = *fixture.fake.joined();
  REQUIRE(event.worker == "a");
  REQUIRE(event.attempt == std::string(16, 'A'));
  REQUIRE(event.peer.rfind("127.0.0.1:", 0) == 0);
}

TEST_CASE("C7.4 a protocol out of range is refused and both sides are named") {
  ServiceFixture fixture;
  RawControl raw(fixture);
  v1::JoinRequest request = RawControl::JoinRequest();
  SECTION("newer by one") {
    request.mutable_protocol()->set_min(2);
    request.mutable_protocol()->set_max(2);
    const absl::Status status = raw.Join(request);
    REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
    REQUIRE(Has(status.message(), "worker a (build test) speaks protocol 2"));
    REQUIRE(Has(status.message(), "1 to 1"));
    REQUIRE(Has(status.message(), "update this side"));
  }
  SECTION("older than any") {
    request.mutable_protocol()->set_min(0);
    request.mutable_protocol()->set_max(0);
    REQUIRE(raw.Join(request).code() == absl::StatusCode::kInvalidArgument);
  }
  SECTION("minus five") {
    request.mutable_protocol()->set_min(static_cast<uint32_t>(-5));
    request.mutable_protocol()->set_max(static_cast<uint32_t>(-5));
    REQUIRE(raw.Join(request).code() == absl::StatusCode::kFailedPrecondition);
  }
  SECTION("a range that includes ours is fine") {
    request.mutable_protocol()->set_max(9);
    REQUIRE(raw.Join(request).ok());
    REQUIRE(raw.joined.protocol().max() == 1);
  }
}

TEST_CASE("C7.4 an unknown field is ignored") {
  ServiceFixture fixture;
  RawControl raw(fixture);
  v1::JoinRequest request = RawControl::JoinRequest();
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(999, 1);
  REQUIRE(raw.Join(request).ok());
}

TEST_CASE("a worker set to another run is refused, and both runs are named") {
  ServiceFixture fixture;
  JoinCall call = ServiceFixture::Call();
  call.run = "other";
  const absl::Status status = fixture.port->Join(call).status();
  REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(Has(status.message(), "\"other\""));
  REQUIRE(Has(status.message(), "\"kjv\""));
}

TEST_CASE("a shard with ids beyond the vocabulary is refused at join") {
  ServiceFixture fixture;
  JoinCall call = ServiceFixture::Call();
  call.max_token = 256;
  const absl::Status status = fixture.port->Join(call).status();
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(Has(status.message(), "256"));
}

TEST_CASE("names, attempts, digests and fencing of a wrong form are refused") {
  ServiceFixture fixture;
  RawControl raw(fixture);
  v1::JoinRequest request = RawControl::JoinRequest();
  SECTION("name") { request.set_worker("../a"); }
  SECTION("attempt") { request.set_attempt("short"); }
  SECTION("session") { request.set_previous_session("short"); }
  SECTION("digest") { request.set_settings_digest("short"); }
  SECTION("fencing") { request.mutable_last_seen()->set_lineage("short"); }
  SECTION("too large") { request.set_build(std::string(65 << 10, 'x')); }
  REQUIRE(raw.Join(request).code() == absl::StatusCode::kInvalidArgument);
  REQUIRE_FALSE(fixture.fake.joined().has_value());
}

TEST_CASE("C5.1 a message over the limit ends that call only") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  RawControl raw(fixture);
  v1::JoinRequest request = RawControl::JoinRequest();
  request.set_build(std::string(6 << 20, 'x'));
  REQUIRE(raw.Join(request).code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(raw.Join(RawControl::JoinRequest()).ok());
}

TEST_CASE("a long poll is answered when the revision changes") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  absl::StatusOr<RunView> view;
  std::thread watcher(
      [&] { view = fixture.port->Watch(1, absl::Seconds(20)); });
  REQUIRE(fixture.fake.WaitForPolls(1));
  fixture.fake.SetRevision(2);
  watcher.join();
  REQUIRE(view.ok());
  REQUIRE(view->revision == 2);
  REQUIRE(view->phase == RunView::Phase::kRunning);
  REQUIRE(view->folded_tokens == 51200);
  REQUIRE(view->notice == "round 3 waits for b");
  REQUIRE(view->fragments.size() == 1);
  REQUIRE(view->fragments[0].version == 2);
  REQUIRE(view->fragments[0].open_round == 3);
  REQUIRE(view->leases.size() == 1);
  const RunView::Lease& lease = view->leases[0];
  REQUIRE(lease.round == 3);
  REQUIRE(lease.base_version == 2);
  REQUIRE(lease.base_digest == Sha256("base"));
  REQUIRE(lease.steps == 25);
  REQUIRE(lease.progress == 0.25);
  REQUIRE(lease.progress_step == 0.001);
  REQUIRE(lease.deadline_left == absl::Seconds(90));
  REQUIRE(lease.window_steps == 40);
  REQUIRE(view->evals.size() == 1);
  REQUIRE(view->evals[0].slice == 1);
  REQUIRE(view->evals[0].first_window == 8);
  REQUIRE(view->evals[0].windows == 4);
  REQUIRE(view->evals[0].shard_digest == Sha256("shard"));
  REQUIRE(view->probe.has_value());
  REQUIRE(view->probe->version == 2);
  REQUIRE(view->probe->first_window == 12);
  REQUIRE(view->probe->windows == 6);
  REQUIRE(view->probe->shard_digest == Sha256("shard"));
}

TEST_CASE(
    "a poll with another revision is answered at once, one that expires "
    "with the same") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  auto view = fixture.port->Watch(0, absl::Seconds(20));
  REQUIRE(view.ok());
  REQUIRE(view->revision == 1);
  std::thread watcher(
      [&] { view = fixture.port->Watch(1, absl::Seconds(20)); });
  REQUIRE(fixture.fake.WaitForPolls(1));
  REQUIRE(fixture.fake.last_max_wait() == absl::Seconds(20));
  fixture.fake.ExpirePolls();
  watcher.join();
  REQUIRE(view.ok());
  REQUIRE(view->revision == 1);
}

TEST_CASE("the server bounds a long poll at 45 s, whatever is asked") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  RawControl raw(fixture);
  v1::WatchRequest request;
  request.set_session("x");
  request.set_max_wait_ms(3600000);
  grpc::ClientContext context;
  v1::RunView view;
  REQUIRE(FromGrpcStatus(raw.stub->Watch(&context, request, &view)).code() ==
          absl::StatusCode::kPermissionDenied);
  REQUIRE(fixture.fake.last_max_wait() == absl::Seconds(45));
}

TEST_CASE("a cancelled long poll does no harm when it is answered later") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  std::thread watcher(
      [&] { REQUIRE_FALSE(fixture.port->Watch(1, absl::Seconds(20)).ok()); });
  REQUIRE(fixture.fake.WaitForPolls(1));
  fixture.port->Shutdown();
  watcher.join();
  fixture.fake.SetRevision(2);
  auto second = fixture.MakePort();
  REQUIRE(second->Join(ServiceFixture::Call()).ok());
}

TEST_CASE("beats, resolving, evaluations and leaving pass their values") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  ProgressReport report;
  report.round = 3;
  report.window_step = 7;
  report.loss = 3.25;
  report.step_seconds = 0.5;
  report.state = "training";
  report.digest = Sha256("copy");
  report.unsent_steps = 12;
  report.unsent_tokens = 1200;
  report.probe = {.version = 2,
                  .first_window = 12,
                  .windows = 6,
                  .loss_sum = 321.5,
                  .tokens = 96};
  const auto revision = fixture.port->Report(report);
  REQUIRE(revision.ok());
  REQUIRE(*revision == 1);
  const WorkerProgress progress = *fixture.fake.progress();
  REQUIRE(progress.round == 3);
  REQUIRE(progress.window_step == 7);
  REQUIRE(progress.loss == 3.25);
  REQUIRE(progress.step_seconds == 0.5);
  REQUIRE(progress.state == "training");
  REQUIRE(progress.digest == Sha256("copy"));
  REQUIRE(progress.unsent_steps == 12);
  REQUIRE(progress.unsent_tokens == 1200);
  REQUIRE(progress.probe.has_value());
  REQUIRE(progress.probe->version == 2);
  REQUIRE(progress.probe->first_window == 12);
  REQUIRE(progress.probe->windows == 6);
  REQUIRE(progress.probe->loss_sum == 321.5);
  REQUIRE(progress.probe->tokens == 96);
  REQUIRE(progress.bytes_sent > 0);

  const auto files = fixture.port->Resolve(0, 1);
  REQUIRE(files.ok());
  REQUIRE(files->size() == 2);
  REQUIRE((*files)[0].image);
  REQUIRE((*files)[0].digest == Sha256("image"));
  REQUIRE_FALSE((*files)[1].image);
  REQUIRE((*files)[1].version == 2);
  REQUIRE((*files)[1].bytes == 4000);
  REQUIRE((*files)[1].result_digest == Sha256("base"));

  REQUIRE(fixture.port->ReportEval(2, 1, 100.0, 512).ok());
  REQUIRE(fixture.port->ReportEval(2, 1, 100.0, 0).code() ==
          absl::StatusCode::kInvalidArgument);
  REQUIRE(fixture.port->Leave("SIGTERM").ok());
  REQUIRE(fixture.fake.left() == "SIGTERM");
}

}  // namespace
}  // namespace diloco

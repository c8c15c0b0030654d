#include <string>

#include "common/rpc/channel.h"
#include "common/rpc/status_codec.h"
#include "diloco/v1/admin.grpc.pb.h"
#include "tests/component/service/service_fixture.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

struct AdminFixture : ServiceFixture {
  AdminFixture()
      : stub(v1::Admin::NewStub(
            MakeChannel(absl::StrCat("127.0.0.1:", server->port()),
                        ChannelKind::kControl))) {}

  template <typename Request, typename Response>
  absl::Status Call(grpc::Status (v1::Admin::Stub::*method)(
                        grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    SetTimeout(&context, absl::Seconds(30));
    return FromGrpcStatus((stub.get()->*method)(&context, request, response));
  }

  std::unique_ptr<v1::Admin::Stub> stub;
};

TEST_CASE("the status shows the run, its rounds, workers and evaluation") {
  AdminFixture fixture;
  v1::StatusResponse status;
  REQUIRE(
      fixture.Call(&v1::Admin::Stub::GetStatus, v1::StatusRequest(), &status)
          .ok());
  REQUIRE(status.run() == "kjv");
  REQUIRE(status.phase() == v1::PHASE_RUNNING);
  REQUIRE(status.folded_tokens() == 51200);
  REQUIRE(status.rounds(0).round() == 3);
  REQUIRE(status.rounds(0).version() == 2);
  REQUIRE(status.workers(0).name() == "a");
  REQUIRE(status.workers(0).seconds_since_heard() == 0.5);
  REQUIRE(status.workers(0).tokens_per_second() == 2048);
  REQUIRE(status.eval().loss() == 2.0);
  // 2 nats over 4 bytes.
  REQUIRE(status.eval().bits_per_byte() == Approx(0.72135).margin(1e-5));
  REQUIRE(status.ready());
  REQUIRE_FALSE(status.build().empty());
}

TEST_CASE("events carry the journal's records in order") {
  AdminFixture fixture;
  v1::EventsRequest request;
  request.set_after_sequence(0);
  v1::EventsResponse events;
  REQUIRE(fixture.Call(&v1::Admin::Stub::GetEvents, request, &events).ok());
  REQUIRE(events.events_size() == 2);
  REQUIRE(events.events(0).sequence() == 1);
  REQUIRE(events.events(0).unix_ms() == 1000);
  REQUIRE(events.events(1).record().version_published().version() == 2);
  REQUIRE(events.events(1).status().run() == "kjv");
}

TEST_CASE("the operator's wishes reach the coordinator as events") {
  AdminFixture fixture;
  v1::AdminReply reply;
  SECTION("pause") {
    v1::SetPausedRequest request;
    request.set_paused(true);
    request.set_reason("maintenance");
    REQUIRE(fixture.Call(&v1::Admin::Stub::SetPaused, request, &reply).ok());
    const auto event = std::get<PauseEvent>(*fixture.fake.admin_event());
    REQUIRE(event.paused);
    REQUIRE(event.reason == "maintenance");
  }
  SECTION("stop after the current round") {
    REQUIRE(
        fixture.Call(&v1::Admin::Stub::StopRun, v1::StopRunRequest(), &reply)
            .ok());
    REQUIRE_FALSE(std::get<StopEvent>(*fixture.fake.admin_event())
                      .after_round.has_value());
  }
  SECTION("stop after a round") {
    v1::StopRunRequest request;
    request.set_after_round(12);
    REQUIRE(fixture.Call(&v1::Admin::Stub::StopRun, request, &reply).ok());
    REQUIRE(std::get<StopEvent>(*fixture.fake.admin_event()).after_round == 12);
    REQUIRE(Has(reply.message(), "round 12"));
  }
  SECTION("drain") {
    v1::WorkerRequest request;
    request.set_worker("a");
    REQUIRE(fixture.Call(&v1::Admin::Stub::DrainWorker, request, &reply).ok());
    REQUIRE(std::get<DrainEvent>(*fixture.fake.admin_event()).worker == "a");
  }
  SECTION("evict") {
    v1::WorkerRequest request;
    request.set_worker("a");
    REQUIRE(fixture.Call(&v1::Admin::Stub::EvictWorker, request, &reply).ok());
    REQUIRE(std::get<EvictEvent>(*fixture.fake.admin_event()).worker == "a");
  }
  REQUIRE(reply.fencing().epoch() == 5);
}

TEST_CASE("a change of settings is answered with what was changed") {
  AdminFixture fixture;
  v1::ChangeSettingsRequest request;
  v1::AdminReply reply;
  REQUIRE(
      fixture.Call(&v1::Admin::Stub::ChangeSettings, request, &reply).code() ==
      absl::StatusCode::kInvalidArgument);
  v1::SettingValue* const value = request.add_values();
  value->set_key("outer.lr");
  value->set_value("0.5");
  REQUIRE(fixture.Call(&v1::Admin::Stub::ChangeSettings, request, &reply).ok());
  REQUIRE(reply.message() ==
          "outer.lr old -> 0.5 from round 4 (settings revision 5)");
  *request.add_values() = *value;
  REQUIRE(
      fixture.Call(&v1::Admin::Stub::ChangeSettings, request, &reply).code() ==
      absl::StatusCode::kInvalidArgument);
  v1::SettingsResponse settings;
  REQUIRE(
      fixture
          .Call(&v1::Admin::Stub::GetSettings, v1::SettingsRequest(), &settings)
          .ok());
  REQUIRE(settings.revision() == 5);
  REQUIRE(settings.in_force(0).value() == "0.7");
  REQUIRE(settings.accepted(0).value() == "0.5");
}

TEST_CASE("a refusal reaches the operator with its reason") {
  AdminFixture fixture;
  v1::WorkerRequest request;
  request.set_worker("nobody");
  v1::AdminReply reply;
  const absl::Status status =
      fixture.Call(&v1::Admin::Stub::DrainWorker, request, &reply);
  REQUIRE(status.code() == absl::StatusCode::kNotFound);
  REQUIRE(Has(status.message(), "nobody"));
}

TEST_CASE("an export is described by model, files and tokenizer") {
  AdminFixture fixture;
  v1::ExportDescription description;
  REQUIRE(fixture
              .Call(&v1::Admin::Stub::DescribeExport, v1::ExportRequest(),
                    &description)
              .ok());
  REQUIRE(description.run() == "kjv");
  REQUIRE(description.model_json() == "{}");
  REQUIRE(description.version() == 2);
  REQUIRE(description.fragments_size() == 1);
  REQUIRE(description.fragments(0).files(0).kind() == v1::FILE_KIND_IMAGE);
  REQUIRE(description.fragments(0).files(1).kind() == v1::FILE_KIND_UPDATE);
  REQUIRE(description.tokenizer(0).name() == "tokenizer.model");
  REQUIRE(description.tokenizer(0).file().bytes() == 9);
  REQUIRE(description.layout_digest() == Sha256("layout").ToBytes());
  REQUIRE(description.eval().version() == 2);
}

}  // namespace
}  // namespace diloco

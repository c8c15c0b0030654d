#include <string>
#include <thread>

#include "tests/component/service/service_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace diloco {
namespace {

TEST_CASE(
    "C5.4 a stop ends long polls and uploads with a status to try again "
    "on, well within its grace") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  const SampleUpdate update(dir, SampleBytes(8 << 20));
  CancelFlag cancel{false};
  absl::Status watched;
  std::thread watcher(
      [&] { watched = fixture.port->Watch(1, absl::Seconds(45)).status(); });
  fixture.proxy->SetRate(1 << 20);
  absl::StatusOr<UploadOutcome> uploaded;
  std::thread uploader([&] {
    uploaded = fixture.port->Upload(update.offer, *update.file, cancel);
  });
  REQUIRE(fixture.fake.WaitForPolls(1));
  REQUIRE(fixture.fake.WaitForUploaded(1));

  const int port = fixture.server->port();
  const Instant start = Clock::Real()->Now();
  fixture.server->Shutdown(absl::Seconds(20));
  REQUIRE(Clock::Real()->Now() - start < absl::Seconds(10));
  watcher.join();
  REQUIRE(watched.code() == absl::StatusCode::kUnavailable);

  // The same upload goes on with the next process at the same address.
  fixture.proxy->SetRate(0);
  auto again =
      GrpcServer::Start(&fixture.fake, absl::StrCat("127.0.0.1:", port));
  REQUIRE(again.ok());
  uploader.join();
  REQUIRE(uploaded.ok());
  REQUIRE(fixture.fake.uploaded().size() == 8 << 20);
  (*again)->Shutdown(absl::Seconds(1));
}

TEST_CASE(
    "C5.4 a reader that stands still does not hold a stop beyond its "
    "grace") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  const std::string bytes = SampleBytes(32 << 20);
  REQUIRE(WriteFileAtomic(FileSystem::Posix(), dir.File("served"), bytes).ok());
  const Digest digest = BlockDigest(bytes);
  fixture.fake.AddFile(digest, dir.File("served"), bytes.size());
  CancelFlag cancel{false};
  fixture.proxy->SetRate(1 << 20);
  absl::Status status;
  std::thread loader([&] {
    status = fixture.port->Download(digest, bytes.size(), dir.File("fetched"),
                                    cancel);
  });
  REQUIRE(fixture.proxy->WaitForBytesDown(1 << 20, absl::Seconds(60)));
  // As a process that was stopped: it reads no more.
  fixture.proxy->Stall(true);
  const Instant start = Clock::Real()->Now();
  fixture.server->Shutdown(absl::Seconds(1));
  REQUIRE(Clock::Real()->Now() - start < absl::Seconds(10));
  cancel = true;
  loader.join();
  REQUIRE(status.code() == absl::StatusCode::kCancelled);
}

TEST_CASE("an address in use is named, with what to do") {
  ServiceFixture fixture;
  FakeCoordinator other;
  const std::string address =
      absl::StrCat("127.0.0.1:", fixture.server->port());
  const absl::Status status = GrpcServer::Start(&other, address).status();
  REQUIRE(status.code() == absl::StatusCode::kUnavailable);
  REQUIRE(Has(status.message(), address));
  REQUIRE(Has(status.message(), "in use"));
}

TEST_CASE("calls are counted by method and code") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  JoinCall call = ServiceFixture::Call();
  call.run = "other";
  REQUIRE_FALSE(fixture.port->Join(call).ok());
  fixture.server->Shutdown(absl::Seconds(1));
  const std::string text = fixture.fake.options().metrics->Text();
  REQUIRE(Has(text,
              "diloco_coordinator_grpc_handled_total{code=\"OK\","
              "method=\"Join\"} 1"));
  REQUIRE(Has(text, "code=\"FAILED_PRECONDITION\",method=\"Join\"} 1"));
}

}  // namespace
}  // namespace diloco

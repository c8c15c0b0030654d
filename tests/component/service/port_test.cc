// What the worker's port does when the coordinator is gone, another one, or
// behind a line that swallows.
#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "tests/component/service/service_fixture.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

Fencing With(Fencing fencing, uint64_t epoch, char nonce) {
  fencing.epoch = epoch;
  fencing.boot_nonce = std::string(8, nonce);
  return fencing;
}

TEST_CASE("a coordinator that is not there is UNAVAILABLE and named") {
  std::string address;
  {
    ServiceFixture fixture;
    address = absl::StrCat("127.0.0.1:", fixture.server->port());
  }
  auto port = *MakeGrpcPort({.coordinator = address});
  const absl::Status status = port->Join(ServiceFixture::Call()).status();
  REQUIRE(status.code() == absl::StatusCode::kUnavailable);
  REQUIRE(Has(status.message(), address));
}

TEST_CASE("a malformed coordinator address is refused") {
  for (const char* bad : {"", "host", ":7600", "host:", "host:0", "host:x"}) {
    INFO(bad);
    REQUIRE(MakeGrpcPort({.coordinator = bad}).status().code() ==
            absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE(
    "a restarted coordinator is followed, an older one and a twin stop "
    "the worker") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  const Fencing first = fixture.fake.fencing();
  fixture.fake.SetFencing(With(first, 6, 'M'));
  REQUIRE(fixture.port->Watch(0, absl::ZeroDuration()).ok());
  std::string expected;
  SECTION("older") {
    fixture.fake.SetFencing(With(first, 5, 'N'));
    expected = "older";
  }
  SECTION("twin") {
    fixture.fake.SetFencing(With(first, 6, 'X'));
    expected = "two coordinators";
  }
  const absl::Status status = fixture.port->Report({}).status();
  REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(Has(status.message(), expected));
  // Final, even when the right one comes back.
  fixture.fake.SetFencing(With(first, 6, 'M'));
  REQUIRE(fixture.port->Watch(0, absl::ZeroDuration()).status().code() ==
          absl::StatusCode::kFailedPrecondition);
  REQUIRE(fixture.Join().status().code() ==
          absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("what an earlier process saw counts at join") {
  ServiceFixture fixture;
  JoinCall call = ServiceFixture::Call();
  call.last_seen = With(fixture.fake.fencing(), 9, 'Z');
  REQUIRE(fixture.port->Join(call).status().code() ==
          absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("another lineage needs a new join, which takes it over") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  Fencing restored = With(fixture.fake.fencing(), 1, 'R');
  restored.lineage = std::string(16, 'K');
  fixture.fake.SetFencing(restored);
  const absl::Status status = fixture.port->Report({}).status();
  REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(Has(status.message(), "join again"));
  REQUIRE(fixture.Join().ok());
  REQUIRE(fixture.port->Report({}).ok());
}

TEST_CASE("calls go on over a new connection after a cut") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  fixture.proxy->CutAll();
  absl::Status status;
  for (int i = 0; i < 200; ++i) {
    status = fixture.port->Watch(0, absl::ZeroDuration()).status();
    if (status.ok()) break;
    REQUIRE(status.code() == absl::StatusCode::kUnavailable);
  }
  REQUIRE(status.ok());
  REQUIRE(fixture.proxy->connections() == 2);
}

TEST_CASE(
    "C5.3 a line that swallows everything is noticed by the next beat, "
    "and a new one is opened") {
  ServiceFixture fixture;
  GrpcPortOptions options = fixture.PortOptions();
  options.control_deadline = absl::Milliseconds(500);
  auto port = *MakeGrpcPort(options);
  REQUIRE(port->Join(ServiceFixture::Call()).ok());
  absl::Status watched;
  std::thread watcher(
      [&] { watched = port->Watch(1, absl::Seconds(45)).status(); });
  REQUIRE(fixture.fake.WaitForPolls(1));
  fixture.proxy->SetBlackHole(true);
  REQUIRE(port->Report({}).status().code() ==
          absl::StatusCode::kDeadlineExceeded);
  // The poll on the dead connection does not wait for its own deadline.
  watcher.join();
  REQUIRE(watched.code() == absl::StatusCode::kUnavailable);
  fixture.proxy->SetBlackHole(false);
  REQUIRE(port->Report({}).ok());
}

TEST_CASE(
    "C5.3 connections that something on the way forgot while they were idle "
    "are replaced") {
  ServiceFixture fixture;
  GrpcPortOptions options = fixture.PortOptions();
  options.control_deadline = absl::Milliseconds(500);
  auto port = *MakeGrpcPort(options);
  REQUIRE(port->Join(ServiceFixture::Call()).ok());
  TempDir dir;
  const SampleUpdate update(dir, SampleBytes(1000));
  const CancelFlag cancel{false};
  REQUIRE(port->Upload(update.offer, *update.file, cancel).ok());
  fixture.proxy->ForgetIdle(absl::Milliseconds(100));
  REQUIRE(fixture.proxy->WaitForForgotten(2, absl::Seconds(30)));
  fixture.proxy->ForgetIdle(absl::ZeroDuration());
  const Instant start = Clock::Real()->Now();
  REQUIRE(port->Report({}).status().code() ==
          absl::StatusCode::kDeadlineExceeded);
  REQUIRE(port->Report({}).ok());
  // The transfer needs no ping that nobody answers to find out.
  REQUIRE(port->Upload(update.offer, *update.file, cancel).ok());
  REQUIRE(Clock::Real()->Now() - start < absl::Seconds(10));
  REQUIRE(fixture.proxy->connections() == 4);
}

TEST_CASE("bulk and control have connections of their own") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  REQUIRE(fixture.proxy->connections() == 1);
  TempDir dir;
  const SampleUpdate update(dir, SampleBytes(1000));
  const CancelFlag cancel{false};
  REQUIRE(fixture.port->Upload(update.offer, *update.file, cancel).ok());
  REQUIRE(fixture.proxy->connections() == 2);
}

TEST_CASE("beats are answered in time while an upload fills the line") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  const SampleUpdate update(dir, SampleBytes(8 << 20));
  const CancelFlag cancel{false};
  fixture.proxy->SetRate(4 << 20);
  absl::StatusOr<UploadOutcome> outcome;
  std::thread uploader([&] {
    outcome = fixture.port->Upload(update.offer, *update.file, cancel);
  });
  REQUIRE(fixture.fake.WaitForUploaded(1 << 20));
  for (int i = 0; i < 20; ++i) REQUIRE(fixture.port->Report({}).ok());
  REQUIRE(fixture.fake.uploaded().size() < 8 << 20);
  uploader.join();
  REQUIRE(outcome.ok());
}

TEST_CASE(
    "beats get through a line of 10 Mbit/s that several connections share "
    "while transfers fill it both ways") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  const std::string bytes = SampleBytes(4 << 20);
  const SampleUpdate update(dir, bytes);
  const std::string path = dir.File("served");
  REQUIRE(WriteFileAtomic(FileSystem::Posix(), path, bytes).ok());
  fixture.fake.AddFile(update.offer.digest, path, bytes.size());
  const CancelFlag cancel{false};
  fixture.proxy->SetRate(1'250'000);
  fixture.proxy->SetQueue(256 << 10);
  std::atomic<int> running{2};
  absl::StatusOr<UploadOutcome> up;
  absl::Status down;
  std::thread uploader([&] {
    up = fixture.port->Upload(update.offer, *update.file, cancel);
    --running;
  });
  std::thread loader([&] {
    down = fixture.port->Download(update.offer.digest, bytes.size(),
                                  dir.File("fetched"), cancel);
    --running;
  });
  // Three seconds and more; a lease of three would want one answer a second.
  absl::Duration slowest;
  int beats = 0;
  for (; running == 2; ++beats) {
    const Instant start = Clock::Real()->Now();
    REQUIRE(fixture.port->Report({}).ok());
    slowest = std::max(slowest, Clock::Real()->Now() - start);
  }
  uploader.join();
  loader.join();
  REQUIRE(up.ok());
  REQUIRE(down.ok());
  REQUIRE(beats > 3);
  REQUIRE(slowest < absl::Seconds(1));
}

TEST_CASE("after a shutdown every call ends at once with CANCELLED") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  fixture.port->Shutdown();
  REQUIRE(fixture.port->Report({}).status().code() ==
          absl::StatusCode::kCancelled);
  TempDir dir;
  const SampleUpdate update(dir, SampleBytes(1000));
  const CancelFlag cancel{false};
  REQUIRE(fixture.port->Upload(update.offer, *update.file, cancel)
              .status()
              .code() == absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace diloco

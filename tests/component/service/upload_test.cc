#include <string>
#include <thread>

#include "tests/component/service/service_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace diloco {
namespace {

constexpr size_t kMiB = 1 << 20;

TEST_CASE("an update of many chunks arrives whole, is verified and counted") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  const std::string bytes = SampleBytes(5 * kMiB + 123);
  const SampleUpdate update(dir, bytes);
  const CancelFlag cancel{false};
  fixture.fake.SetBusy(3);
  const auto outcome = fixture.port->Upload(update.offer, *update.file, cancel);
  REQUIRE(outcome.ok());
  REQUIRE(outcome->kind == UploadOutcome::Kind::kAccepted);
  REQUIRE((fixture.fake.uploaded() == bytes));
  REQUIRE(fixture.fake.finishes() == 4);
  const UpdateValue value = *fixture.fake.value();
  REQUIRE(value.digest == update.offer.digest);
  REQUIRE(value.codec == Codec::kFp16);
  REQUIRE(value.tokens == 25600);
  REQUIRE(value.steps == 25);
  REQUIRE(value.loss == 3.5);
  // Both sides count the same chunks; the port's count has the small calls too,
  // and agrees with the bytes that really passed.
  const double passed = static_cast<double>(fixture.proxy->bytes_up());
  REQUIRE(fixture.fake.bulk_received() > bytes.size());
  REQUIRE(fixture.port->traffic().sent >= fixture.fake.bulk_received());
  REQUIRE(static_cast<double>(fixture.port->traffic().sent) / passed ==
          Approx(1.0).margin(0.02));
}

TEST_CASE(
    "C5.5 an upload that is cut again and again goes on where it was, "
    "below 1.2 times its bytes") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  const std::string bytes = SampleBytes(10 * kMiB);
  const SampleUpdate update(dir, bytes);
  const CancelFlag cancel{false};
  fixture.proxy->SetRate(8 * kMiB);
  fixture.proxy->CutEvery(2 * kMiB);
  const uint64_t before = fixture.proxy->bytes_up();
  const auto outcome = fixture.port->Upload(update.offer, *update.file, cancel);
  REQUIRE(outcome.ok());
  REQUIRE((fixture.fake.uploaded() == bytes));
  REQUIRE(fixture.fake.begins() >= 5);
  const double sent = static_cast<double>(fixture.proxy->bytes_up() - before);
  REQUIRE(sent / static_cast<double>(bytes.size()) < 1.2);
}

// As the case gives it, five minutes long: component_service_long.
TEST_CASE("C5.5 60 MiB through 200 kB/s, cut every 10 s", "[.long]") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  const std::string bytes = SampleBytes(60 * kMiB);
  const SampleUpdate update(dir, bytes);
  const CancelFlag cancel{false};
  fixture.proxy->SetRate(200'000);
  fixture.proxy->CutEvery(10 * 200'000);
  const uint64_t before = fixture.proxy->bytes_up();
  const auto outcome = fixture.port->Upload(update.offer, *update.file, cancel);
  REQUIRE(outcome.ok());
  REQUIRE((fixture.fake.uploaded() == bytes));
  REQUIRE(fixture.proxy->cuts() >= 30);
  const double sent = static_cast<double>(fixture.proxy->bytes_up() - before);
  UNSCOPED_INFO("sent " << sent / static_cast<double>(bytes.size()));
  REQUIRE(sent / static_cast<double>(bytes.size()) < 1.2);
}

TEST_CASE(
    "C5.5 a line that breaks after less than a large chunk still brings the "
    "update through") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  const std::string bytes = SampleBytes(3 * kMiB);
  const SampleUpdate update(dir, bytes);
  const CancelFlag cancel{false};
  fixture.proxy->CutEvery(kMiB / 2);
  REQUIRE(fixture.port->Upload(update.offer, *update.file, cancel).ok());
  REQUIRE((fixture.fake.uploaded() == bytes));
}

TEST_CASE("C5.5 a damaged chunk is sent again and nothing before it") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  std::string bytes = SampleBytes(4 * kMiB);
  // Behind the small first chunks; more than once, as it may fall on the edge
  // of a packet.
  const std::string marker = "damage the byte behind this";
  for (size_t at = 2 * kMiB; at < 3 * kMiB; at += 10000) {
    bytes.replace(at, marker.size(), marker);
  }
  const SampleUpdate update(dir, bytes);
  const CancelFlag cancel{false};
  fixture.proxy->SetRate(16 * kMiB);
  fixture.proxy->CorruptAfter(marker);
  const auto outcome = fixture.port->Upload(update.offer, *update.file, cancel);
  REQUIRE(outcome.ok());
  REQUIRE(fixture.proxy->corrupted());
  REQUIRE((fixture.fake.uploaded() == bytes));
  REQUIRE(fixture.fake.begins() == 2);
  // From the start of the damaged chunk, the one place where it could go on.
  REQUIRE(fixture.fake.last_begin_offset() > kMiB);
}

TEST_CASE("a chunk at the wrong offset is ABORTED and the upload recovers") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  const std::string bytes = SampleBytes(2 * kMiB);
  const SampleUpdate update(dir, bytes);
  const CancelFlag cancel{false};
  // Once something came, the spool loses its tail.
  fixture.proxy->SetRate(kMiB);
  absl::StatusOr<UploadOutcome> outcome;
  std::thread uploader([&] {
    outcome = fixture.port->Upload(update.offer, *update.file, cancel);
  });
  REQUIRE(fixture.fake.WaitForUploaded(kMiB / 2));
  fixture.fake.RewindNextWrite(1000);
  uploader.join();
  REQUIRE(outcome.ok());
  REQUIRE(fixture.fake.begins() == 2);
  REQUIRE((fixture.fake.uploaded() == bytes));
}

TEST_CASE("an accepted update is not sent again and gets the same receipt") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  const std::string bytes = SampleBytes(kMiB);
  const SampleUpdate update(dir, bytes);
  const CancelFlag cancel{false};
  REQUIRE(fixture.port->Upload(update.offer, *update.file, cancel).ok());
  const uint64_t before = fixture.port->traffic().sent;
  const auto again = fixture.port->Upload(update.offer, *update.file, cancel);
  REQUIRE(again.ok());
  REQUIRE(again->kind == UploadOutcome::Kind::kAccepted);
  REQUIRE(fixture.port->traffic().sent - before < 4096);
}

TEST_CASE(
    "the same key with other content is a conflict that reaches the "
    "caller at once") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir, other_dir;
  const SampleUpdate update(dir, SampleBytes(1000));
  const SampleUpdate other(other_dir, SampleBytes(1001));
  const CancelFlag cancel{false};
  REQUIRE(fixture.port->Upload(update.offer, *update.file, cancel).ok());
  const auto outcome = fixture.port->Upload(other.offer, *other.file, cancel);
  REQUIRE(outcome.status().code() == absl::StatusCode::kAlreadyExists);
  REQUIRE(Has(outcome.status().message(), "round 3"));
}

TEST_CASE("a late or refused update ends with the coordinator's reason") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  const SampleUpdate update(dir, SampleBytes(1000));
  const CancelFlag cancel{false};
  fixture.fake.SetVerdict(UploadVerdict::Kind::kLate, "round 3 has closed");
  auto outcome = fixture.port->Upload(update.offer, *update.file, cancel);
  REQUIRE(outcome.ok());
  REQUIRE(outcome->kind == UploadOutcome::Kind::kLate);
  REQUIRE(outcome->reason == "round 3 has closed");
  fixture.fake.SetVerdict(UploadVerdict::Kind::kRefused, "not finite");
  outcome = fixture.port->Upload(update.offer, *update.file, cancel);
  REQUIRE(outcome.ok());
  REQUIRE(outcome->kind == UploadOutcome::Kind::kRefused);
}

TEST_CASE(
    "a local file that does not match its digest is given up after the "
    "second try") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  SampleUpdate update(dir, SampleBytes(kMiB));
  update.offer.digest = Sha256("something else");
  const CancelFlag cancel{false};
  const auto outcome = fixture.port->Upload(update.offer, *update.file, cancel);
  REQUIRE(outcome.status().code() == absl::StatusCode::kDataLoss);
  REQUIRE(fixture.fake.finishes() == 2);
}

TEST_CASE("an upload with a superseded session stops") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  auto second = fixture.MakePort();
  REQUIRE(second->Join(ServiceFixture::Call()).ok());
  TempDir dir;
  const SampleUpdate update(dir, SampleBytes(1000));
  const CancelFlag cancel{false};
  REQUIRE(fixture.port->Upload(update.offer, *update.file, cancel)
              .status()
              .code() == absl::StatusCode::kPermissionDenied);
}

TEST_CASE(
    "C5.5 an upload that stands still is given up with bytes done and "
    "total, then goes on") {
  ServiceFixture fixture;
  GrpcPortOptions options = fixture.PortOptions();
  options.progress_limit = absl::Milliseconds(300);
  options.control_deadline = absl::Milliseconds(500);
  auto port = *MakeGrpcPort(options);
  REQUIRE(port->Join(ServiceFixture::Call()).ok());
  TempDir dir;
  const std::string bytes = SampleBytes(8 * kMiB);
  const SampleUpdate update(dir, bytes);
  const CancelFlag cancel{false};
  fixture.proxy->SetRate(8 * kMiB);
  absl::StatusOr<UploadOutcome> outcome;
  std::thread uploader(
      [&] { outcome = port->Upload(update.offer, *update.file, cancel); });
  REQUIRE(fixture.fake.WaitForUploaded(kMiB));
  const uint64_t passed = fixture.proxy->bytes_up();
  // Never closed and never heard of again: it goes on over another connection.
  fixture.proxy->SetBlackHole(true);
  REQUIRE(fixture.proxy->WaitForBytesUp(passed + 1, absl::Seconds(10)));
  fixture.proxy->SetBlackHole(false);
  uploader.join();
  REQUIRE(outcome.ok());
  REQUIRE((fixture.fake.uploaded() == bytes));
}

TEST_CASE(
    "C5.6 where one connection is held back by its window, several carry an "
    "upload") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  // 2 MiB each 100 ms a connection.
  fixture.proxy->SetRate(100 * kMiB);
  fixture.proxy->SetQueue(kMiB);
  fixture.proxy->SetDelay(absl::Milliseconds(50));
  fixture.proxy->SetWindow(9 * kMiB / 4);
  REQUIRE(fixture.port->Report({}).ok());
  REQUIRE(fixture.port->Report({}).ok());
  TempDir dir;
  const std::string bytes = SampleBytes(48 * kMiB + 77);
  const SampleUpdate update(dir, bytes);
  const CancelFlag cancel{false};
  const int before = fixture.proxy->connections();
  SECTION("in order") {
    REQUIRE(fixture.port->Upload(update.offer, *update.file, cancel).ok());
    REQUIRE(fixture.fake.begins() == 1);
  }
  SECTION("and goes on where it was when all are cut") {
    absl::StatusOr<UploadOutcome> outcome;
    std::thread uploader([&] {
      outcome = fixture.port->Upload(update.offer, *update.file, cancel);
    });
    REQUIRE(fixture.fake.WaitForUploaded(40 * kMiB));
    fixture.proxy->CutAll();
    uploader.join();
    REQUIRE(outcome.ok());
    REQUIRE(fixture.fake.begins() >= 2);
    REQUIRE(fixture.fake.last_begin_offset() >= 40 * kMiB);
  }
  REQUIRE((fixture.fake.uploaded() == bytes));
  // One for control is open already.
  REQUIRE(fixture.proxy->connections() - before >= 2);
}

TEST_CASE("C5.5 pacing is no lack of progress") {
  ServiceFixture fixture;
  GrpcPortOptions options = fixture.PortOptions();
  options.bulk_rate = 128 << 10;  // Half a second a chunk.
  options.progress_limit = absl::Milliseconds(200);
  auto port = *MakeGrpcPort(options);
  REQUIRE(port->Join(ServiceFixture::Call()).ok());
  TempDir dir;
  const std::string bytes = SampleBytes(256 << 10);
  const CancelFlag cancel{false};
  SECTION("of an upload") {
    const SampleUpdate update(dir, bytes);
    REQUIRE(port->Upload(update.offer, *update.file, cancel).ok());
    REQUIRE((fixture.fake.uploaded() == bytes));
    REQUIRE(fixture.fake.begins() == 1);
  }
  SECTION("of a download") {
    const std::string served = dir.File("served");
    REQUIRE(WriteFileAtomic(FileSystem::Posix(), served, bytes).ok());
    const Digest digest = BlockDigest(bytes);
    fixture.fake.AddFile(digest, served, bytes.size());
    const std::string target = dir.File("fetched");
    REQUIRE(port->Download(digest, bytes.size(), target, cancel).ok());
    REQUIRE((*ReadFile(FileSystem::Posix(), target) == bytes));
  }
}

TEST_CASE("a cancelled or shut down upload ends soon") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  const SampleUpdate update(dir, SampleBytes(4 * kMiB));
  CancelFlag cancel{false};
  fixture.proxy->SetRate(kMiB / 4);
  absl::StatusOr<UploadOutcome> outcome;
  std::thread uploader([&] {
    outcome = fixture.port->Upload(update.offer, *update.file, cancel);
  });
  REQUIRE(fixture.fake.WaitForUploaded(1));
  SECTION("by the caller's flag") { cancel = true; }
  SECTION("by the port's shutdown") { fixture.port->Shutdown(); }
  uploader.join();
  REQUIRE(outcome.status().code() == absl::StatusCode::kCancelled);
  REQUIRE(fixture.fake.uploaded().size() < 4 * kMiB);
}

}  // namespace
}  // namespace diloco

#include <string>
#include <thread>

#include "tests/component/service/service_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace diloco {
namespace {

constexpr size_t kMebi = 1 << 20;

// A file that the coordinator serves, and where it is fetched to.
struct Served {
  Served(FakeCoordinator* fake, const TempDir& dir, const std::string& content)
      : bytes(content),
        digest(BlockDigest(content)),
        target(dir.File("fetched")) {
    const std::string path = dir.File("served");
    DILOCO_CHECK(WriteFileAtomic(FileSystem::Posix(), path, bytes).ok());
    fake->AddFile(digest, path, bytes.size());
  }
  std::string Fetched() const { return *ReadFile(FileSystem::Posix(), target); }
  const std::string bytes;
  const Digest digest;
  const std::string target;
};

TEST_CASE("a file arrives whole, is counted, and leaves no .part behind") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  const Served served(&fixture.fake, dir, SampleBytes(5 * kMebi + 77));
  const CancelFlag cancel{false};
  const uint64_t before = fixture.port->traffic().received;
  REQUIRE(
      fixture.port
          ->Download(served.digest, served.bytes.size(), served.target, cancel)
          .ok());
  REQUIRE((served.Fetched() == served.bytes));
  REQUIRE_FALSE(FileSystem::Posix()->Exists(served.target + ".part"));
  const uint64_t received = fixture.port->traffic().received - before;
  REQUIRE(received > served.bytes.size());
  REQUIRE(received < served.bytes.size() + served.bytes.size() / 100);
  REQUIRE(fixture.fake.bulk_sent() == received);
}

TEST_CASE("an empty file is a file") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  const Served served(&fixture.fake, dir, "");
  const CancelFlag cancel{false};
  REQUIRE(fixture.port->Download(served.digest, 0, served.target, cancel).ok());
  REQUIRE(served.Fetched().empty());
}

TEST_CASE("a download goes on from what an earlier process left") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  const Served served(&fixture.fake, dir, SampleBytes(4 * kMebi));
  const CancelFlag cancel{false};
  REQUIRE(WriteFileAtomic(FileSystem::Posix(), served.target + ".part",
                          served.bytes.substr(0, 3 * kMebi + 5))
              .ok());
  REQUIRE(
      fixture.port
          ->Download(served.digest, served.bytes.size(), served.target, cancel)
          .ok());
  REQUIRE((served.Fetched() == served.bytes));
  REQUIRE(fixture.fake.bulk_sent() < kMebi + kMebi / 10);
}

TEST_CASE("what a crash left damaged is fetched again from the start") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  const Served served(&fixture.fake, dir, SampleBytes(2 * kMebi));
  const CancelFlag cancel{false};
  REQUIRE(WriteFileAtomic(FileSystem::Posix(), served.target + ".part",
                          std::string(kMebi, '\0'))
              .ok());
  REQUIRE(
      fixture.port
          ->Download(served.digest, served.bytes.size(), served.target, cancel)
          .ok());
  REQUIRE((served.Fetched() == served.bytes));
}

TEST_CASE(
    "C5.6 where one connection is held back by its window, several bring a "
    "file") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  fixture.proxy->SetRate(100 * kMebi);
  fixture.proxy->SetQueue(kMebi);
  fixture.proxy->SetDelay(absl::Milliseconds(50));
  fixture.proxy->SetWindow(9 * kMebi / 4);
  REQUIRE(fixture.port->Report({}).ok());
  REQUIRE(fixture.port->Report({}).ok());
  TempDir dir;
  const Served served(&fixture.fake, dir, SampleBytes(48 * kMebi + 77));
  const CancelFlag cancel{false};
  const int before = fixture.proxy->connections();
  absl::Status status;
  std::thread loader([&] {
    status = fixture.port->Download(served.digest, served.bytes.size(),
                                    served.target, cancel);
  });
  SECTION("in order") {}
  SECTION("and goes on where it was when all are cut") {
    REQUIRE(fixture.proxy->WaitForBytesDown(40 * kMebi, absl::Seconds(30)));
    fixture.proxy->CutAll();
  }
  loader.join();
  REQUIRE(status.ok());
  REQUIRE((served.Fetched() == served.bytes));
  REQUIRE(fixture.proxy->connections() - before >= 2);
}

TEST_CASE("a download over a line that breaks goes on where it was") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  const Served served(&fixture.fake, dir, SampleBytes(8 * kMebi));
  const CancelFlag cancel{false};
  fixture.proxy->SetRate(8 * kMebi);
  absl::Status status;
  std::thread loader([&] {
    status = fixture.port->Download(served.digest, served.bytes.size(),
                                    served.target, cancel);
  });
  const uint64_t start = fixture.proxy->bytes_down();
  for (int i = 1; i <= 3; ++i) {
    REQUIRE(fixture.proxy->WaitForBytesDown(start + 2 * i * kMebi,
                                            absl::Seconds(30)));
    fixture.proxy->CutAll();
  }
  loader.join();
  REQUIRE(status.ok());
  REQUIRE((served.Fetched() == served.bytes));
}

TEST_CASE(
    "a file whose content is not its digest is DATA_LOSS after the "
    "second try") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  const Served served(&fixture.fake, dir, SampleBytes(kMebi));
  const Digest other = Sha256("other");
  fixture.fake.AddFile(other, dir.File("served"), served.bytes.size());
  const CancelFlag cancel{false};
  const absl::Status status =
      fixture.port->Download(other, served.bytes.size(), served.target, cancel);
  REQUIRE(status.code() == absl::StatusCode::kDataLoss);
  REQUIRE(fixture.fake.bulk_sent() > 2 * kMebi);
  REQUIRE_FALSE(FileSystem::Posix()->Exists(served.target));
}

TEST_CASE("a file of another size is DATA_LOSS that gives both sizes") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  const Served served(&fixture.fake, dir, SampleBytes(1000));
  const CancelFlag cancel{false};
  const absl::Status status =
      fixture.port->Download(served.digest, 1001, served.target, cancel);
  REQUIRE(status.code() == absl::StatusCode::kDataLoss);
  REQUIRE(Has(status.message(), "1000 bytes"));
  REQUIRE(Has(status.message(), "1001"));
}

TEST_CASE("a file that is gone is NOT_FOUND at once") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  const CancelFlag cancel{false};
  REQUIRE(
      fixture.port->Download(Sha256("gone"), 10, dir.File("fetched"), cancel)
          .code() == absl::StatusCode::kNotFound);
}

TEST_CASE("a disk that cannot be written ends a download with the path") {
  ServiceFixture fixture;
  REQUIRE(fixture.Join().ok());
  TempDir dir;
  const Served served(&fixture.fake, dir, SampleBytes(1000));
  const CancelFlag cancel{false};
  const absl::Status status = fixture.port->Download(
      served.digest, served.bytes.size(), dir.File("no/such/dir"), cancel);
  REQUIRE_FALSE(status.ok());
  REQUIRE(Has(status.message(), "no/such/dir"));
}

}  // namespace
}  // namespace diloco

// The test file system itself: what it loses, refuses and damages is what the
// tests of durable state stand on.
#include "tests/support/fault_file_system.h"

#include "tests/support/catch.h"

namespace diloco {
namespace {

std::string Content(FileSystem* fs, const std::string& path) {
  auto content = ReadFile(fs, path);
  return content.ok() ? *content : content.status().ToString();
}

TEST_CASE("only the files that were named find no space") {
  FaultFileSystem fs;
  REQUIRE(WriteFileAtomic(&fs, "a.full", "old").ok());
  fs.set_full(".full");
  const auto file = fs.OpenForWrite("a.full");
  CHECK((*file)->WriteAt(0, "new").ok());
  CHECK((*file)->WriteAt(3, "more").code() ==
        absl::StatusCode::kResourceExhausted);
  CHECK((*file)->Reserve(4).code() == absl::StatusCode::kResourceExhausted);
  CHECK(*ReadFile(&fs, "a.full") == "new");
  CHECK(WriteFileAtomic(&fs, "b.other", "new").ok());
  fs.set_full("");
  CHECK((*file)->WriteAt(3, "more").ok());
}

TEST_CASE("a power cut takes unsynced bytes and directory changes") {
  FaultFileSystem fs;
  REQUIRE(fs.CreateDirs("state/x").ok());
  {
    auto file = fs.OpenForWrite("state/x/a");
    REQUIRE(file.ok());
    REQUIRE((*file)->WriteAt(0, "kept").ok());
    REQUIRE((*file)->Sync().ok());
    REQUIRE(fs.SyncDir("state/x").ok());
    REQUIRE((*file)->WriteAt(4, " lost").ok());
    auto other = fs.OpenForWrite("state/x/b");
    REQUIRE(other.ok());
    REQUIRE((*other)->WriteAt(0, "no directory entry").ok());
    REQUIRE((*other)->Sync().ok());
    fs.Crash();
    CHECK((*file)->WriteAt(0, "x").code() == absl::StatusCode::kUnavailable);
  }
  CHECK(Content(&fs, "state/x/a") == "kept");
  CHECK(!fs.Exists("state/x/b"));
}

TEST_CASE("a torn tail keeps a prefix of the unsynced bytes") {
  FaultFileSystem fs;
  auto file = fs.OpenForWrite("log");
  REQUIRE(file.ok());
  REQUIRE((*file)->WriteAt(0, "one").ok());
  REQUIRE((*file)->Sync().ok());
  REQUIRE(fs.SyncDir(".").ok());
  REQUIRE((*file)->WriteAt(3, "two").ok());
  fs.CrashKeeping(2);
  CHECK(Content(&fs, "log") == "onetw");
}

TEST_CASE("an unsynced rename or removal is undone by a power cut") {
  FaultFileSystem fs;
  REQUIRE(WriteFileAtomic(&fs, "a", "1").ok());
  REQUIRE(WriteFileAtomic(&fs, "b", "2").ok());
  REQUIRE(fs.Rename("a", "c").ok());
  REQUIRE(fs.Remove("b").ok());
  fs.Crash();
  CHECK(Content(&fs, "a") == "1");
  CHECK(Content(&fs, "b") == "2");
  CHECK(!fs.Exists("c"));
}

TEST_CASE("a full disk keeps what fits and says so") {
  FaultFileSystem fs;
  fs.set_space(10);
  auto file = fs.OpenForWrite("f");
  REQUIRE(file.ok());
  CHECK((*file)->Reserve(11).code() == absl::StatusCode::kResourceExhausted);
  CHECK((*file)->Reserve(10).ok());
  CHECK((*file)->WriteAt(0, "12345678").ok());
  CHECK((*file)->WriteAt(8, "90ab").code() ==
        absl::StatusCode::kResourceExhausted);
  CHECK(Content(&fs, "f") == "1234567890");
  CHECK((*file)->WriteAt(2, "xx").ok());
  fs.set_space(100);
  CHECK((*file)->WriteAt(10, "ab").ok());
}

TEST_CASE("planted faults fire once, at their call") {
  FaultFileSystem fs;
  auto file = fs.OpenForWrite("f");
  REQUIRE(file.ok());
  fs.FailWrite(2, 1);
  CHECK((*file)->WriteAt(0, "ab").ok());
  CHECK((*file)->WriteAt(2, "cd").code() == absl::StatusCode::kDataLoss);
  CHECK(Content(&fs, "f") == "abc");
  CHECK((*file)->WriteAt(2, "cd").ok());
  fs.FailSync(1);
  CHECK((*file)->Sync().code() == absl::StatusCode::kDataLoss);
  CHECK((*file)->Sync().ok());
  fs.FailRead(1);
  CHECK(!ReadFile(&fs, "f").ok());
  fs.FlipBit("f", 0, 1);
  CHECK(Content(&fs, "f") == "cbcd");
}

TEST_CASE("everything that changes files stops at the planted step") {
  FaultFileSystem fs;
  REQUIRE(WriteFileAtomic(&fs, "f", "old").ok());
  const int before = fs.mutations();
  REQUIRE(WriteFileAtomic(&fs, "f", "new").ok());
  const int steps = fs.mutations() - before;
  CHECK(steps >= 5);
  fs.StopAfter(2);
  CHECK(WriteFileAtomic(&fs, "f", "x").code() ==
        absl::StatusCode::kUnavailable);
  CHECK(!fs.Remove("f").ok());
  fs.KillProcess();
  CHECK(Content(&fs, "f") == "new");
}

TEST_CASE(
    "names are listed sorted, locks are exclusive until the process ends") {
  FaultFileSystem fs;
  REQUIRE(fs.CreateDirs("d/sub").ok());
  REQUIRE(WriteFileAtomic(&fs, "d/z", "").ok());
  REQUIRE(WriteFileAtomic(&fs, "d/a", "").ok());
  auto names = fs.List("d");
  REQUIRE(names.ok());
  CHECK(*names == std::vector<std::string>{"a", "sub", "z"});
  CHECK(fs.OpenForWrite("missing/f").status().code() ==
        absl::StatusCode::kNotFound);
  auto lock = fs.Lock("d/LOCK");
  REQUIRE(lock.ok());
  CHECK(!fs.Lock("d/LOCK").ok());
  fs.KillProcess();
  auto next = fs.Lock("d/LOCK");
  REQUIRE(next.ok());
  lock->reset();
  CHECK(!fs.Lock("d/LOCK").ok());
}

}  // namespace
}  // namespace diloco

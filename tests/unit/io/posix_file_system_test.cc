// The POSIX file system against a real directory.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/io/file_system.h"
#include "tests/support/catch.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/temp_dir.h"

namespace diloco {
namespace {

bool Mentions(const absl::Status& status, absl::string_view text) {
  return absl::StrContains(status.message(), text);
}

TEST_CASE("directory part and joining of paths") {
  CHECK(DirName("a/b/c") == "a/b");
  CHECK(DirName("c") == ".");
  CHECK(DirName("/c") == "/");
  CHECK(JoinPath("a", "b") == "a/b");
  CHECK(JoinPath("a/", "b") == "a/b");
  CHECK(JoinPath("", "b") == "b");
}

TEST_CASE("what was written is read, mapped and listed") {
  TempDir dir;
  FileSystem* fs = FileSystem::Posix();
  REQUIRE(fs->CreateDirs(dir.File("a/b/c")).ok());
  REQUIRE(fs->CreateDirs(dir.File("a/b/c")).ok());
  auto file = fs->OpenForWrite(dir.File("a/b/f"));
  REQUIRE(file.ok());
  REQUIRE((*file)->WriteAt(3, "def").ok());
  REQUIRE((*file)->WriteAt(0, "abc").ok());
  (*file)->StartWriteBack();
  REQUIRE((*file)->Sync().ok());
  CHECK((*file)->Size().value() == 6);
  REQUIRE((*file)->Truncate(5).ok());
  CHECK(ReadFile(fs, dir.File("a/b/f")).value() == "abcde");
  auto readable = fs->OpenForRead(dir.File("a/b/f"));
  REQUIRE(readable.ok());
  auto map = (*readable)->Map();
  REQUIRE(map.ok());
  CHECK(std::string(map->data(), map->size()) == "abcde");
  CHECK((*readable)->Map()->data() == map->data());
  CHECK(fs->List(dir.File("a/b")).value() ==
        std::vector<std::string>{"c", "f"});
  CHECK(fs->FreeBytes(dir.path()).value() > 0);
  REQUIRE(fs->Rename(dir.File("a/b/f"), dir.File("g")).ok());
  REQUIRE(fs->SyncDir(dir.path()).ok());
  CHECK(!fs->Exists(dir.File("a/b/f")));
  REQUIRE(fs->Remove(dir.File("g")).ok());
  CHECK(!fs->Exists(dir.File("g")));
}

TEST_CASE("an empty file maps to an empty span") {
  TempDir dir;
  FileSystem* fs = FileSystem::Posix();
  REQUIRE(WriteFileAtomic(fs, dir.File("e"), "").ok());
  auto file = fs->OpenForRead(dir.File("e"));
  REQUIRE(file.ok());
  auto map = (*file)->Map();
  REQUIRE(map.ok());
  CHECK(map->empty());
  CHECK(ReadFile(fs, dir.File("e")).value().empty());
}

TEST_CASE("opening for writing keeps the content") {
  TempDir dir;
  FileSystem* fs = FileSystem::Posix();
  REQUIRE(WriteFileAtomic(fs, dir.File("f"), "abc").ok());
  {
    auto file = fs->OpenForWrite(dir.File("f"));
    REQUIRE(file.ok());
    REQUIRE((*file)->WriteAt(1, "X").ok());
  }
  CHECK(ReadFile(fs, dir.File("f")).value() == "aXc");
}

TEST_CASE("errors name the path and have the code a caller acts on") {
  TempDir dir;
  FileSystem* fs = FileSystem::Posix();
  const auto missing = fs->OpenForRead(dir.File("none")).status();
  CHECK(missing.code() == absl::StatusCode::kNotFound);
  CHECK(Mentions(missing, dir.File("none")));
  CHECK(fs->OpenForRead(dir.path()).status().code() ==
        absl::StatusCode::kInternal);
  CHECK(fs->OpenForWrite(dir.path()).status().code() ==
        absl::StatusCode::kInternal);
  CHECK(fs->OpenForWrite(dir.File("no/f")).status().code() ==
        absl::StatusCode::kNotFound);
  CHECK(fs->Remove(dir.File("none")).code() == absl::StatusCode::kNotFound);
  CHECK(fs->Rename(dir.File("none"), dir.File("x")).code() ==
        absl::StatusCode::kNotFound);
  CHECK(fs->List(dir.File("none")).status().code() ==
        absl::StatusCode::kNotFound);
  CHECK(fs->SyncDir(dir.File("none")).code() == absl::StatusCode::kNotFound);
  REQUIRE(WriteFileAtomic(fs, dir.File("file"), "x").ok());
  CHECK(fs->CreateDirs(dir.File("file")).code() == absl::StatusCode::kInternal);
  CHECK(fs->CreateDirs(dir.File("file/sub")).code() ==
        absl::StatusCode::kInternal);
}

TEST_CASE("reading past the end says where the file ends") {
  TempDir dir;
  FileSystem* fs = FileSystem::Posix();
  REQUIRE(WriteFileAtomic(fs, dir.File("f"), "abc").ok());
  auto file = fs->OpenForRead(dir.File("f"));
  REQUIRE(file.ok());
  char out[4];
  const absl::Status status = (*file)->ReadAt(1, absl::MakeSpan(out, 4));
  CHECK(status.code() == absl::StatusCode::kOutOfRange);
  CHECK(Mentions(status, "ends at byte 3"));
  CHECK((*file)->ReadAt(1, absl::MakeSpan(out, 2)).ok());
}

TEST_CASE("ReadFile refuses a file over its limit") {
  TempDir dir;
  FileSystem* fs = FileSystem::Posix();
  REQUIRE(WriteFileAtomic(fs, dir.File("f"), "abcd").ok());
  CHECK(ReadFile(fs, dir.File("f"), 4).ok());
  CHECK(ReadFile(fs, dir.File("f"), 3).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a pipe is refused at once instead of waited for") {
  TempDir dir;
  REQUIRE(mkfifo(dir.File("pipe").c_str(), 0600) == 0);
  CHECK(FileSystem::Posix()->OpenForRead(dir.File("pipe")).status().code() ==
        absl::StatusCode::kInternal);
}

TEST_CASE("a full device is RESOURCE_EXHAUSTED") {
  auto file = FileSystem::Posix()->OpenForWrite("/dev/full");
  REQUIRE(file.ok());
  const absl::Status status = (*file)->WriteAt(0, "x");
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(Mentions(status, "/dev/full"));
}

TEST_CASE("C7.1 a file size limit is an error, not the end of the process") {
  TempDir dir;
  FileSystem* fs = FileSystem::Posix();
  REQUIRE(WriteFileAtomic(fs, dir.File("f"), "old").ok());
  rlimit before;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit small = before;
  small.rlim_cur = 4096;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const absl::Status status =
      WriteFileAtomic(fs, dir.File("f"), std::string(10000, 'x'));
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(ReadFile(fs, dir.File("f")).value() == "old");
  CHECK(fs->List(dir.path()).value() == std::vector<std::string>{"f"});
}

TEST_CASE("reserving space keeps the size and refuses what cannot fit") {
  TempDir dir;
  auto file = FileSystem::Posix()->OpenForWrite(dir.File("f"));
  REQUIRE(file.ok());
  REQUIRE((*file)->WriteAt(0, "abc").ok());
  CHECK((*file)->Reserve(1 << 20).ok());
  CHECK((*file)->Size().value() == 3);
  CHECK((*file)->Reserve(uint64_t{1} << 60).code() ==
        absl::StatusCode::kResourceExhausted);
}

TEST_CASE("a held lock is refused with the holder's process id") {
  TempDir dir;
  FileSystem* fs = FileSystem::Posix();
  auto lock = fs->Lock(dir.File("LOCK"));
  REQUIRE(lock.ok());
  const auto second = fs->Lock(dir.File("LOCK")).status();
  CHECK(second.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Mentions(second, absl::StrCat("process ", getpid())));
  lock->reset();
  CHECK(fs->Lock(dir.File("LOCK")).ok());
}

TEST_CASE("an atomic replacement goes through a symbolic link") {
  TempDir dir;
  FileSystem* fs = FileSystem::Posix();
  REQUIRE(fs->CreateDirs(dir.File("far")).ok());
  REQUIRE(symlink("far/f", dir.File("near").c_str()) == 0);
  REQUIRE(symlink(dir.File("near").c_str(), dir.File("nearer").c_str()) == 0);
  // Also while the target is missing.
  for (const char* content : {"first", "second"}) {
    REQUIRE(WriteFileAtomic(fs, dir.File("nearer"), content).ok());
    CHECK(ReadFile(fs, dir.File("far/f")).value() == content);
  }
  CHECK(std::filesystem::is_symlink(dir.File("near")));
  CHECK(std::filesystem::is_symlink(dir.File("nearer")));
  CHECK(fs->List(dir.File("far")).value() == std::vector<std::string>{"f"});
  REQUIRE(symlink("loop", dir.File("loop").c_str()) == 0);
  const absl::Status loop = WriteFileAtomic(fs, dir.File("loop"), "x");
  CHECK(loop.code() == absl::StatusCode::kInternal);
  CHECK(Mentions(loop, dir.File("loop")));
}

TEST_CASE("C7.1 an atomic replacement cut at any step leaves old or new") {
  // How many steps one replacement has.
  int steps;
  {
    FaultFileSystem fs;
    REQUIRE(WriteFileAtomic(&fs, "f", "old").ok());
    const int before = fs.mutations();
    REQUIRE(WriteFileAtomic(&fs, "f", "new content").ok());
    steps = fs.mutations() - before;
  }
  for (int step = 1; step <= steps; ++step) {
    for (const bool power_cut : {false, true}) {
      FaultFileSystem fs;
      REQUIRE(WriteFileAtomic(&fs, "f", "old").ok());
      fs.StopAfter(step);
      CHECK(!WriteFileAtomic(&fs, "f", "new content").ok());
      power_cut ? fs.CrashKeeping(4) : fs.KillProcess();
      const std::string content = ReadFile(&fs, "f").value();
      CHECK((content == "old" || content == "new content"));
      // What is left over does not disturb the next attempt.
      REQUIRE(WriteFileAtomic(&fs, "f", "n").ok());
      CHECK(ReadFile(&fs, "f").value() == "n");
    }
  }
}

TEST_CASE("C7.1 a full disk or a failed sync leaves the old content") {
  FaultFileSystem fs;
  REQUIRE(WriteFileAtomic(&fs, "f", "old").ok());
  fs.set_space(8);
  CHECK(WriteFileAtomic(&fs, "f", "too long for it").code() ==
        absl::StatusCode::kResourceExhausted);
  CHECK(ReadFile(&fs, "f").value() == "old");
  CHECK(!fs.Exists("f.tmp"));
  fs.FailSync(1);
  CHECK(WriteFileAtomic(&fs, "f", "new").code() == absl::StatusCode::kDataLoss);
  CHECK(ReadFile(&fs, "f").value() == "old");
}

}  // namespace
}  // namespace diloco

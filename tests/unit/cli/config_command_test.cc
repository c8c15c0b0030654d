// `dilococtl config`: its exit codes, acceptance case C4.5.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "common/io/file_system.h"
#include "coordinator/cli/commands.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

// A directory that goes away with this object.
class TempDir {
 public:
  TempDir() {
    std::string pattern = "dilococtl-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() {
    FileSystem* fs = FileSystem::Posix();
    const auto names = fs->List(path_);
    if (!names.ok()) return;
    for (const std::string& name : *names) {
      fs->Remove(JoinPath(path_, name)).IgnoreError();
    }
    fs->Remove(path_).IgnoreError();
  }
  std::string Path(const std::string& name) const {
    return JoinPath(path_, name);
  }
  std::string Write(const std::string& name, const std::string& content) const {
    REQUIRE(WriteFileAtomic(FileSystem::Posix(), Path(name), content).ok());
    return Path(name);
  }

 private:
  std::string path_;
};

TEST_CASE("C4.5 config check exits 2 for bad files and 0 for a good one") {
  const TempDir dir;
  REQUIRE(RunDilococtl({"config", "init", dir.Path("run.yaml")}) == kExitOk);
  CHECK(RunDilococtl({"config", "check", dir.Path("run.yaml")}) == kExitOk);
  CHECK(RunDilococtl({"config", "print", dir.Path("run.yaml")}) == kExitOk);
  CHECK(RunDilococtl({"config", "check", "--json", dir.Path("run.yaml")}) ==
        kExitUsage);
  CHECK(RunDilococtl({"config", "check", dir.Path("missing.yaml")}) ==
        kExitUsage);
  CHECK(RunDilococtl({"config", "check", dir.Path("")}) == kExitUsage);
  CHECK(RunDilococtl({"config", "check", dir.Write("empty.yaml", "")}) ==
        kExitUsage);
  CHECK(RunDilococtl({"config", "check",
                      dir.Write("twice.yaml", "run: {name: a, name: b}\n")}) ==
        kExitUsage);
  CHECK(RunDilococtl({"config", "print",
                      dir.Write("list.yaml", "- 1\n-2\n")}) == kExitUsage);
  if (geteuid() != 0) {  // Root reads everything.
    const std::string secret = dir.Write("secret.yaml", "run: {name: a}\n");
    REQUIRE(chmod(secret.c_str(), 0) == 0);
    CHECK(RunDilococtl({"config", "check", secret}) == kExitUsage);
  }
}

TEST_CASE("config init does not write over a file") {
  const TempDir dir;
  const std::string path = dir.Write("run.yaml", "mine");
  CHECK(RunDilococtl({"config", "init", path}) == kExitOther);
  CHECK(*ReadFile(FileSystem::Posix(), path) == "mine");
}

TEST_CASE("an unknown config action is wrong usage") {
  CHECK(RunDilococtl({"config", "chek", "run.yaml"}) == kExitUsage);
  CHECK(RunDilococtl({"config", "check"}) == kExitUsage);
}

}  // namespace
}  // namespace diloco

// `dilococtl config`: its exit codes, acceptance case C4.5.
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "common/io/file_system.h"
#include "coordinator/cli/commands.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace diloco {
namespace {

TEST_CASE("C4.5 config check exits 2 for bad files and 0 for a good one") {
  const TempDir dir;
  REQUIRE(RunDilococtl({"config", "init", dir.File("run.yaml")}) == kExitOk);
  CHECK(RunDilococtl({"config", "check", dir.File("run.yaml")}) == kExitOk);
  CHECK(RunDilococtl({"config", "print", dir.File("run.yaml")}) == kExitOk);
  CHECK(RunDilococtl({"config", "check", "--json", dir.File("run.yaml")}) ==
        kExitUsage);
  CHECK(RunDilococtl({"config", "check", dir.File("missing.yaml")}) ==
        kExitUsage);
  CHECK(RunDilococtl({"config", "check", dir.File("")}) == kExitUsage);
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

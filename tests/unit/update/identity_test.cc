#include "worker/update/identity.h"

#include "absl/strings/str_replace.h"
#include "tests/support/catch.h"
#include "tests/support/fault_file_system.h"

namespace diloco {
namespace {

constexpr char kPath[] = "scratch/identity.json";

WorkerIdentity Sample() {
  WorkerIdentity identity;
  identity.worker = "site-a";
  identity.run = "genesis";
  identity.session = std::string(16, '\x22');
  identity.fencing = {std::string(16, '\x11'), 3, std::string(8, '\x33')};
  identity.settings_digest = BlockDigest("settings");
  return identity;
}

TEST_CASE("an identity reads back as it was saved, after a crash too") {
  FaultFileSystem fs;
  REQUIRE(fs.CreateDirs("scratch").ok());
  REQUIRE_FALSE(LoadIdentity(&fs, "scratch")->has_value());
  REQUIRE(SaveIdentity(&fs, "scratch", Sample()).ok());
  fs.Crash();
  const absl::StatusOr<std::optional<WorkerIdentity>> loaded =
      LoadIdentity(&fs, "scratch");
  REQUIRE(loaded.ok());
  REQUIRE((*loaded)->worker == "site-a");
  REQUIRE((*loaded)->run == "genesis");
  REQUIRE((*loaded)->session == Sample().session);
  REQUIRE((*loaded)->fencing == Sample().fencing);
  REQUIRE((*loaded)->settings_digest == Sample().settings_digest);
}

TEST_CASE("a damaged identity names its file and what to do") {
  FaultFileSystem fs;
  REQUIRE(fs.CreateDirs("scratch").ok());
  REQUIRE(SaveIdentity(&fs, "scratch", Sample()).ok());
  const std::string good = *ReadFile(&fs, kPath);
  const std::string damaged = GENERATE_COPY(
      std::string(), good.substr(0, good.size() / 2),
      absl::StrReplaceAll(good, {{"\"epoch\": 3", "\"epoch\": \"x\""}}),
      absl::StrReplaceAll(good, {{"session", "sessiom"}}),
      absl::StrReplaceAll(good, {{"22222222", "2222zz22"}}));
  REQUIRE(damaged != good);
  REQUIRE(WriteFileAtomic(&fs, kPath, damaged).ok());
  const absl::Status status = LoadIdentity(&fs, "scratch").status();
  INFO(status.ToString());
  REQUIRE(absl::IsDataLoss(status));
  REQUIRE(status.message().find(kPath) != std::string::npos);
  REQUIRE(status.message().find("scratch directory") != std::string::npos);
}

}  // namespace
}  // namespace diloco

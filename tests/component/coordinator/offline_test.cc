// Offline tools on what a real coordinator wrote.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/offline/repair.h"
#include "coordinator/offline/replay.h"
#include "coordinator/offline/run_copy.h"
#include "tests/component/coordinator/offline_run.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

using Code = absl::StatusCode;

constexpr uint64_t kSmallSegments = 1000;

TEST_CASE("the archive tells the rounds of a run while it runs") {
  OfflineRun offline;
  const auto archive = offline.Archive();
  CHECK(archive->state().fragments[0].version == 5);
  REQUIRE(archive->rounds().size() >= 5);
  for (uint64_t version = 1; version <= 5; ++version) {
    const RoundRecord* const round = archive->RoundOfVersion(0, version);
    REQUIRE(round != nullptr);
    CHECK(round->opened.base_version == version - 1);
    CHECK(round->opened.leases.size() == 2);
    CHECK(round->updates.at("a").norm > 0);
    CHECK(round->closed->members.size() == 2);
    CHECK(round->published->digest == offline.digests[version - 1]);
  }
  CHECK(archive->RoundOfVersion(0, 6) == nullptr);
  CHECK(offline.Problem() == "");
}

TEST_CASE(
    "any version that is kept can be rebuilt without its files changing") {
  OfflineRun offline;
  const auto archive = offline.Archive();
  const int mutations = offline.run.fs.mutations();
  for (uint64_t version = 2; version <= 5; ++version) {
    const auto values = ValuesAt(*archive, 0, version);
    INFO(values.status());
    REQUIRE(values.ok());
    CHECK(DigestOfValues(values->theta) == offline.digests[version - 1]);
  }
  // The updates of round 1 went when images 2 and 4 were there.
  CHECK(ValuesAt(*archive, 0, 1).status().code() == Code::kNotFound);
  CHECK(ValuesAt(*archive, 0, 6).status().code() == Code::kNotFound);
  CHECK(offline.run.fs.mutations() == mutations);
}

TEST_CASE("a round that was open over a restart has no duration to tell") {
  OfflineRun offline;
  TestRun& run = offline.run;
  run.End();
  REQUIRE(run.Start().ok());
  run.DeliverAll();
  REQUIRE(run.AwaitVersion(6).ok());
  const auto archive = offline.Archive();
  REQUIRE(archive->rounds().size() >= 6);
  for (const RoundRecord& round : archive->rounds()) {
    CHECK(round.restarted == (round.opened.round == 6));
  }
}

TEST_CASE("verify names the file that is damaged or gone") {
  OfflineRun offline;
  offline.run.End();
  struct {
    const char* part;
    const char* said;
  } const cases[] = {
      {"state/settings.txt", "settings.txt"},
      {"images/f00-v000004.theta", "f00-v000004.theta has digest"},
      {"images/f00-v000002.momentum", "f00-v000002.momentum has digest"},
      {"blobs/f00-v000005.blob", "f00-v000005.blob has digest"},
      {"spool/f00-r000005/a.", "a."}};
  for (const auto& [part, said] : cases) {
    const std::vector<std::string> found = offline.run.FilesWith(part);
    INFO(part);
    REQUIRE(found.size() == 1);
    const std::string content = ReadFile(&offline.run.fs, found[0]).value();
    offline.run.fs.FlipBit(found[0], content.size() - 1, 3);
    INFO(offline.Problem());
    CHECK(absl::StrContains(offline.Problem(), said));
    offline.run.fs.FlipBit(found[0], content.size() - 1, 3);
    REQUIRE(offline.Problem() == "");
    REQUIRE(offline.run.fs.Remove(found[0]).ok());
    CHECK(offline.Problem() != "");
    REQUIRE(WriteFileAtomic(&offline.run.fs, found[0], content).ok());
  }
}

TEST_CASE("C7.2 repair drops what recovery would drop, and keeps a copy") {
  OfflineRun offline(GENERATE(kSmallSegments, Journal::kSegmentBytes));
  TestRun& run = offline.run;
  CHECK(TruncateTail(&run.fs, kStateDir).status().code() ==
        Code::kFailedPrecondition);  // Its coordinator runs.
  run.End();
  const std::string path = run.FilesWith("journal-").back();
  const std::string journal = ReadFile(&run.fs, path).value();
  SECTION("nothing to do") {
    REQUIRE(TruncateTail(&run.fs, kStateDir)->bytes == 0);
  }
  SECTION("a torn tail") {
    const std::string tail = "half a record";
    REQUIRE(WriteFileAtomic(&run.fs, path, journal + tail).ok());
    const auto repaired = TruncateTail(&run.fs, kStateDir);
    INFO(repaired.status());
    REQUIRE(repaired.ok());
    CHECK(repaired->file == path);
    CHECK(repaired->offset == journal.size());
    CHECK(ReadFile(&run.fs, repaired->copy).value() == tail);
  }
  SECTION("a torn tail that is copied already") {
    const std::string tail = "half a record";
    const std::string copy = absl::StrCat(path, ".tail-", journal.size());
    REQUIRE(WriteFileAtomic(&run.fs, path, journal + tail).ok());
    // Another tail at that place is not overwritten; that of a repair which
    // ended before it cut is the same.
    REQUIRE(WriteFileAtomic(&run.fs, copy, "another").ok());
    CHECK(TruncateTail(&run.fs, kStateDir).status().code() ==
          Code::kAlreadyExists);
    REQUIRE(WriteFileAtomic(&run.fs, copy, tail).ok());
    const auto repaired = TruncateTail(&run.fs, kStateDir);
    INFO(repaired.status());
    REQUIRE(repaired.ok());
    CHECK(repaired->copy == copy);
    CHECK(ReadFile(&run.fs, copy).value() == tail);
  }
  SECTION("damage before good records is not for this") {
    run.fs.FlipBit(path, journal.size() / 2, 1);
    const std::string damaged = ReadFile(&run.fs, path).value();
    const absl::Status status = TruncateTail(&run.fs, kStateDir).status();
    INFO(status);
    CHECK(status.code() == Code::kDataLoss);
    CHECK(ReadFile(&run.fs, path).value() == damaged);
    run.fs.FlipBit(path, journal.size() / 2, 1);
  }
  CHECK(ReadFile(&run.fs, path).value() == journal);
  REQUIRE(run.Start().ok());
  CHECK(run.digest() == offline.digests.back());
}

TEST_CASE("a backup of a run that goes on is consistent and no run itself") {
  OfflineRun offline(kSmallSegments);
  TestRun& run = offline.run;
  const auto result = BackUp(&run.fs, kStateDir, "copy", IgnoreProgress);
  INFO(result.status());
  REQUIRE(result.ok());
  CHECK(result->version == 5);
  run.DeliverAll();
  REQUIRE(run.AwaitVersion(6).ok());
  CHECK(offline.Archive("copy")->state().fragments[0].digest ==
        offline.digests[4]);
  CHECK(offline.Problem("copy") == "");
  CHECK(BackUp(&run.fs, kStateDir, "copy", IgnoreProgress).status().code() ==
        Code::kAlreadyExists);
  run.End();
  run.options.state_dir = "copy";
  const absl::Status started = run.Start();
  INFO(started);
  CHECK(started.code() == Code::kFailedPrecondition);
  CHECK(absl::StrContains(started.message(), "restore"));
}

TEST_CASE("retention does not take files under a backup") {
  OfflineRun offline(kSmallSegments);
  TestRun& run = offline.run;
  run.options.keep_images = 2;
  run.options.keep_every = 0;
  run.End();
  REQUIRE(run.Start().ok());
  run.JoinAll();
  const std::vector<std::string> blobs = run.FilesWith("v000003.blob");
  REQUIRE(blobs.size() == 1);
  int begun_again = 0;
  uint64_t copied = 0;
  const auto result = BackUp(&run.fs, kStateDir, "copy", [&](uint64_t bytes) {
    if (bytes < copied) ++begun_again;
    copied = bytes;
    for (uint64_t v = run.Status().fragments[0].version + 1; v <= 11; ++v) {
      run.DeliverAll();
      REQUIRE(run.AwaitVersion(v).ok());
    }
  });
  INFO(result.status());
  REQUIRE(result.ok());
  CHECK(begun_again == 0);
  CHECK_FALSE(run.fs.Exists(blobs[0]));
  CHECK(run.fs.Exists("copy/blobs/f00-v000003.blob"));
  CHECK(offline.Archive("copy")->state().fragments[0].version == 5);
  CHECK(offline.Problem("copy") == "");
}

TEST_CASE("verify beside a run that goes on tells damage from retention") {
  OfflineRun offline(kSmallSegments);
  TestRun& run = offline.run;
  run.options.keep_images = 2;
  run.options.keep_every = 0;
  run.End();
  REQUIRE(run.Start().ok());
  run.JoinAll();
  const bool damaged = GENERATE(false, true);
  if (damaged) run.fs.FlipBit("state/settings.txt", 3, 1);
  std::vector<std::string> problems;
  int read_again = 0;
  bool removed = false;
  const auto good =
      VerifyStateDir(&run.fs, kStateDir, [&](const Finding& finding) {
        if (finding.kind == Finding::Kind::kProblem) {
          problems.push_back(finding.text);
        }
        if (absl::StrContains(finding.text, "read again")) ++read_again;
        for (uint64_t v = run.Status().fragments[0].version + 1; v <= 11; ++v) {
          run.DeliverAll();
          REQUIRE(run.AwaitVersion(v).ok());
        }
        removed = run.FilesWith("v000003.blob").empty();
      });
  INFO(good.status());
  REQUIRE(good.ok());
  CHECK(removed);
  CHECK(read_again == 1);
  CHECK(*good == !damaged);
  REQUIRE(problems.size() == (damaged ? 1 : 0));
  if (damaged) CHECK(absl::StrContains(problems[0], "settings.txt"));
}

TEST_CASE("a start mends settings.txt, or says that it is damaged") {
  OfflineRun offline;
  TestRun& run = offline.run;
  run.End();
  if (GENERATE(false, true)) {
    REQUIRE(run.fs.Remove("state/settings.txt").ok());
  } else {
    run.fs.FlipBit("state/settings.txt", 3, 1);
  }
  SECTION("the run file says what it said") {
    REQUIRE(run.Start().ok());
    CHECK(offline.Problem() == "");
  }
  SECTION("another run file, or another build with more settings") {
    run.options.settings_text += "outer.momentum = 0.5\n";
    run.options.settings_digest = Sha256(run.options.settings_text);
    const absl::Status refused = run.Start();
    INFO(refused);
    CHECK(refused.code() == Code::kFailedPrecondition);
    CHECK(absl::StrContains(refused.message(), "state/settings.txt"));
    CHECK(absl::StrContains(refused.message(), "backup"));
  }
}

TEST_CASE("directories may be written with a slash at the end") {
  OfflineRun offline;
  TestRun& run = offline.run;
  run.End();
  const auto result = BackUp(&run.fs, "state/", "copy//", IgnoreProgress);
  INFO(result.status());
  REQUIRE(result.ok());
  CHECK(offline.Problem("copy") == "");
  CHECK(offline.Problem("copy/") == "");
}

TEST_CASE("a backup does not go into a state directory") {
  OfflineRun offline;
  TestRun& run = offline.run;
  run.End();
  for (const char* out : {"state/copy", "state/images/copy"}) {
    const absl::Status status =
        BackUp(&run.fs, kStateDir, out, IgnoreProgress).status();
    INFO(status);
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(absl::StrContains(status.message(), "outside"));
    CHECK(run.FilesWith("copy").empty());
  }
}

TEST_CASE("a backup clears away what a killed one has left") {
  OfflineRun offline;
  TestRun& run = offline.run;
  run.End();
  for (const char* file : {"copy.0a1b2c3d.tmp/images/x", "copy.mine.tmp/x"}) {
    REQUIRE(run.fs.CreateDirs(DirName(file)).ok());
    REQUIRE(WriteFileAtomic(&run.fs, file, "left").ok());
  }
  REQUIRE(BackUp(&run.fs, kStateDir, "copy", IgnoreProgress).ok());
  CHECK(*run.fs.List(".") ==
        std::vector<std::string>{"copy", "copy.mine.tmp", "state"});
}

TEST_CASE("a backup of a damaged run fails and leaves nothing behind") {
  OfflineRun offline;
  TestRun& run = offline.run;
  run.End();
  run.fs.FlipBit("state/blobs/f00-v000005.blob", 200, 0);
  const absl::Status status =
      BackUp(&run.fs, kStateDir, "copy", IgnoreProgress).status();
  INFO(status);
  CHECK(status.code() == Code::kDataLoss);
  CHECK(absl::StrContains(status.message(), "f00-v000005.blob"));
  CHECK(*run.fs.List(".") == std::vector<std::string>{"state"});
}

}  // namespace
}  // namespace diloco

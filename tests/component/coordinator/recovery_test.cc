// What a start finds: the process ended anywhere, files lost or changed.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/store/fact_codec.h"
#include "coordinator/store/journal_format.h"
#include "tests/component/coordinator/test_run.h"
#include "tests/support/catch.h"
#include "tests/support/sample_update.h"

namespace diloco {
namespace {

using Code = absl::StatusCode;
using Kind = UploadVerdict::Kind;

constexpr char kJournal[] = "state/journal-000001.log";

// Starts a process and goes on until `versions` are published. Everything that
// was done before is repeated without harm.
absl::Status Drive(TestRun& run, uint64_t versions) {
  RETURN_IF_ERROR(run.Start());
  run.JoinAll();
  while (true) {
    ASSIGN_OR_RETURN(const ViewOutcome view, run.View("a"));
    const uint64_t version = view.fragments[0].version;
    if (version >= versions) return absl::OkStatus();
    for (const std::string& worker : run.workers) {
      const std::optional<TestUpdate> update = run.FindUpdate(worker);
      if (!update.has_value() || update->round != version + 1) continue;
      ASSIGN_OR_RETURN(const FinishOutcome outcome,
                       run.Deliver(worker, *update));
      if (outcome.kind == Kind::kRefused) {
        return absl::InternalError(outcome.reason);
      }
    }
    RETURN_IF_ERROR(run.AwaitVersion(version + 1));
  }
}

// Two workers after `versions`; ended.
struct Ended {
  explicit Ended(uint64_t versions) : run(2) {
    REQUIRE(Drive(run, versions).ok());
    digest = run.digest();
    run.End();
  }
  std::string Only(const std::string& part) {
    std::vector<std::string> found = run.FilesWith(part);
    std::erase_if(found, [](const std::string& path) {
      return absl::EndsWith(path, ".tmp");
    });
    INFO(part);
    REQUIRE(found.size() == 1);
    return found[0];
  }
  std::string Content(const std::string& path) {
    return ReadFile(&run.fs, path).value();
  }

  TestRun run;
  Digest digest;
};

TEST_CASE("C7.1 a process that ends anywhere loses and repeats nothing") {
  const bool power_cut = GENERATE(false, true);
  constexpr uint64_t kSegmentBytes = 400;
  TestRun calm(2);
  calm.options.journal_segment_bytes = kSegmentBytes;
  REQUIRE(Drive(calm, 2).ok());
  REQUIRE(calm.FilesWith("journal-000003.log").size() == 1);
  const Digest expected = calm.digest();
  const int steps = calm.fs.mutations();
  REQUIRE(steps > 50);
  for (int step = 1; step <= steps; ++step) {
    INFO("ended at step " << step << " of " << steps << ", power cut "
                          << power_cut);
    TestRun run(2);
    run.options.journal_segment_bytes = kSegmentBytes;
    run.fs.StopAfter(step);
    const absl::Status first = Drive(run, 2);
    INFO(first);
    run.End();
    if (power_cut) run.fs.Crash();
    const absl::Status second = Drive(run, 2);
    INFO(second);
    REQUIRE(second.ok());
    REQUIRE(run.digest() == expected);
    REQUIRE(run.Status().workers[0].rounds_folded == 2);
    REQUIRE(run.Status().workers[1].rounds_folded == 2);
  }
}

TEST_CASE("a lost journal is noticed by any work of its run") {
  Ended ended(3);
  TestRun& run = ended.run;
  std::vector<std::string> keep;
  SECTION("blobs") { keep = {"blobs/"}; }
  SECTION("images") { keep = {"images/"}; }
  SECTION("spools") { keep = {"spool/"}; }
  for (const std::string& path : run.FilesWith("")) {
    if (!absl::StrContains(path, keep[0])) REQUIRE(run.fs.Remove(path).ok());
  }
  const absl::Status status = run.Start();
  INFO(status);
  CHECK(status.code() == Code::kDataLoss);
  CHECK(absl::StrContains(status.message(), "journal-000001.log is missing"));
  CHECK(absl::StrContains(status.message(), keep[0]));
}

TEST_CASE("C7.2 a journal that lost its end is noticed by later work") {
  // Cut behind whole records, or its newest segments and the head are gone.
  Ended ended(3);
  TestRun& run = ended.run;
  const bool segments = GENERATE(false, true);
  const uint64_t versions = GENERATE(0, 1);
  const std::string journal = ended.Content(kJournal);
  uint64_t cut = 0;
  uint64_t published = 0;
  REQUIRE(Journal::Scan(&run.fs, kStateDir, [&](const Journal::Record& record) {
            const Fact fact = DecodeFact(record.type, record.payload).value();
            if (std::holds_alternative<RoundOpened>(fact) &&
                published == versions) {
              cut = record.offset;
            }
            if (std::holds_alternative<VersionPublished>(fact)) ++published;
            return absl::OkStatus();
          }).ok());
  REQUIRE(cut > 0);
  REQUIRE(WriteFileAtomic(&run.fs, kJournal, journal.substr(0, cut)).ok());
  if (segments) REQUIRE(run.fs.Remove("state/journal.head").ok());
  const absl::Status status = run.Start();
  INFO(status);
  CHECK(status.code() == Code::kDataLoss);
  CHECK(absl::StrContains(status.message(), "the journal ends before"));
  run.End();
  CHECK(ended.Content(kJournal) == journal.substr(0, cut));
  REQUIRE(WriteFileAtomic(&run.fs, kJournal, journal).ok());
  REQUIRE(run.Start().ok());
  CHECK(run.digest() == ended.digest);
}

TEST_CASE("C7.4 a state directory of journal format 1 goes on") {
  Ended ended(2);
  TestRun& run = ended.run;
  const std::string journal = ended.Content(kJournal);
  // The header of format 1 (tests/golden/journal/format_1.log); records are the
  // same, and there was no head.
  const std::string header("DILOJRNL\x01\0\0\0\x0f\x8a\x6c\0", 16);
  const std::string old = header + journal.substr(kSegmentHeaderBytes);
  REQUIRE(WriteFileAtomic(&run.fs, kJournal, old).ok());
  REQUIRE(run.fs.Remove("state/journal.head").ok());
  REQUIRE(Drive(run, 3).ok());
  run.End();
  CHECK(absl::StartsWith(ended.Content(kJournal), journal));
  Ended calm(3);
  REQUIRE(run.Start().ok());
  CHECK(run.digest() == calm.digest);
}

TEST_CASE("a run whose first record never came starts anew") {
  Ended ended(1);
  TestRun& run = ended.run;
  for (const std::string& path : run.FilesWith("")) {
    if (!absl::StrContains(path, "-v000000.")) {
      REQUIRE(run.fs.Remove(path).ok());
    }
  }
  const std::vector<std::string> rounds = run.fs.List("state/spool").value();
  for (const std::string& dir : rounds) {
    REQUIRE(run.fs.Remove(JoinPath("state/spool", dir)).ok());
  }
  run.sessions.clear();
  REQUIRE(Drive(run, 1).ok());
  CHECK(run.digest() == ended.digest);
}

TEST_CASE("C7.4 the state directory of another run is refused untouched") {
  Ended ended(1);
  TestRun& run = ended.run;
  const std::string journal = ended.Content(kJournal);
  SECTION("name") {
    run.options.run = "other";
    const absl::Status status = run.Start();
    CHECK(status.code() == Code::kFailedPrecondition);
    CHECK(absl::StrContains(status.message(), "\"test\""));
    CHECK(absl::StrContains(status.message(), "\"other\""));
  }
  SECTION("settings") {
    run.options.settings_digest = Sha256("other");
    const absl::Status status = run.Start();
    CHECK(status.code() == Code::kFailedPrecondition);
    CHECK(absl::StrContains(status.message(), Sha256("other").Short()));
  }
  run.End();
  CHECK(ended.Content(kJournal) == journal);
}

TEST_CASE("C7.1 a rotten image gives way to the one before, and is made anew") {
  // Of version 0, or of one whose updates retention has taken.
  const uint64_t versions = GENERATE(2, 9);
  Ended ended(versions);
  TestRun& run = ended.run;
  const std::string kind = GENERATE(".theta", ".momentum");
  const std::string path =
      ended.Only(absl::StrCat("-v00000", versions / 2 * 2, kind));
  const std::string good = ended.Content(path);
  run.fs.FlipBit(path, 300, 2);
  REQUIRE(run.Start().ok());
  CHECK(run.digest() == ended.digest);
  CHECK(absl::StrContains(run.metrics->Text(),
                          "diloco_coordinator_images_passed_over_total 1\n"));
  CHECK(run.fs.Exists(path + ".broken"));
  CHECK(ended.Content(path) == good);
}

TEST_CASE("spools stay until an image and the one before it cover them") {
  TestRun run(2);
  for (uint64_t versions = 1; versions <= 9; ++versions) {
    REQUIRE(Drive(run, versions).ok());
    run.End();
    // Images are those of even versions. What no start needs goes when the next
    // round is folded: now those known when the newest version was.
    const uint64_t newest = (versions - 1) / 2 * 2;
    const uint64_t covered = newest < 2 ? 0 : newest - 2;
    for (uint64_t round = 1; round <= versions; ++round) {
      INFO("round " << round << " at version " << versions);
      CHECK(run.FilesWith(absl::StrCat("r00000", round, "/")).size() ==
            (round <= covered ? 0 : 2));
    }
  }
}

TEST_CASE("a second coordinator on the same directory is refused") {
  TestRun run(2);
  REQUIRE(Drive(run, 1).ok());
  CoordinatorOptions options = run.options;
  MetricsRegistry metrics;
  options.metrics = &metrics;
  const std::string journal = ReadFile(&run.fs, kJournal).value();
  const absl::Status second = Coordinator::Start(options).status();
  INFO(second);
  CHECK(second.code() == Code::kFailedPrecondition);
  CHECK(absl::StrContains(second.message(), "state/LOCK"));
  CHECK(ReadFile(&run.fs, kJournal).value() == journal);
  // The first goes on, and when it has ended another may begin.
  run.DeliverAll();
  REQUIRE(run.AwaitVersion(2).ok());
  run.End();
  REQUIRE(run.Start().ok());
}

TEST_CASE("a rebuild writes what is damaged and leaves alone what is good") {
  Ended ended(3);
  TestRun& run = ended.run;
  const std::string blob = ended.Only("-v000003.blob");
  const std::string good = ended.Content(blob);
  const bool rotten = GENERATE(false, true);
  if (rotten) run.fs.FlipBit(blob, 300, 2);
  std::vector<std::string> renamed;
  run.fs.hook = [&](HookedFileSystem::Call call, const std::string& path) {
    if (call == HookedFileSystem::Call::kRename) renamed.push_back(path);
  };
  REQUIRE(run.Start().ok());
  run.fs.hook = nullptr;
  CHECK(run.digest() == ended.digest);
  CHECK(ended.Content(blob) == good);
  CHECK(renamed ==
        (rotten ? std::vector<std::string>{blob} : std::vector<std::string>{}));
}

TEST_CASE("a rotten spool stops the start, names the file and spoils nothing") {
  Ended ended(3);
  TestRun& run = ended.run;
  const std::string blob = ended.Content(ended.Only("-v000003.blob"));
  const std::string spool = ended.Only("f00-r000003/a.");
  const std::string good = ended.Content(spool);
  SECTION("a flipped bit") {
    run.fs.FlipBit(spool, good.size() - 5, 2);
    const absl::Status status = run.Start();
    INFO(status);
    CHECK(status.code() == Code::kDataLoss);
    CHECK(absl::StrContains(status.message(), spool));
    CHECK(absl::StrContains(status.message(), "folding round 3"));
    CHECK(absl::StrContains(status.message(), "from a backup"));
  }
  SECTION("another update in its place") {
    const std::string other = PartBytes(Codec::kFp32, run.Values("x", 3, 1));
    REQUIRE(WriteFileAtomic(&run.fs, spool, other).ok());
    const absl::Status status = run.Start();
    INFO(status);
    CHECK(status.code() == Code::kDataLoss);
    CHECK(absl::StrContains(status.message(), "was published as"));
  }
  SECTION("gone") {
    REQUIRE(run.fs.Remove(spool).ok());
    const absl::Status status = run.Start();
    INFO(status);
    CHECK(status.code() == Code::kNotFound);
    CHECK(absl::StrContains(status.message(), spool));
    CHECK(absl::StrContains(status.message(), "from a backup"));
  }
  run.End();
  CHECK(ended.Content(ended.Only("-v000003.blob")) == blob);
  // Restored from a backup, the run goes on.
  REQUIRE(WriteFileAtomic(&run.fs, spool, good).ok());
  REQUIRE(run.Start().ok());
  CHECK(run.digest() == ended.digest);
}

TEST_CASE("a fold that cannot be done stops the next start before it serves") {
  Ended calm(1);
  TestRun run(2);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  REQUIRE(run.Deliver("a", run.NextUpdate("a"))->kind == Kind::kAccepted);
  const std::vector<std::string> spools = run.FilesWith("f00-r000001/a.");
  REQUIRE(spools.size() == 1);
  const uint64_t at = ReadFile(&run.fs, spools[0])->size() - 5;
  run.fs.FlipBit(spools[0], at, 2);
  REQUIRE(run.Deliver("b", run.NextUpdate("b"))->kind == Kind::kAccepted);
  REQUIRE_FALSE(run.AwaitVersion(1).ok());
  INFO(run.fatal());
  CHECK(absl::StrContains(run.fatal().message(), spools[0]));
  run.End();
  const std::string journal = ReadFile(&run.fs, kJournal).value();
  const absl::Status status = run.Start();
  INFO(status);
  CHECK(status.code() == Code::kDataLoss);
  CHECK(absl::StrContains(status.message(), spools[0]));
  run.End();
  CHECK(ReadFile(&run.fs, kJournal).value() == journal);
  run.fs.FlipBit(spools[0], at, 2);
  REQUIRE(Drive(run, 1).ok());
  CHECK(run.digest() == calm.digest);
}

}  // namespace
}  // namespace diloco

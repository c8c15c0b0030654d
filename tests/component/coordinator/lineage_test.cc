// Rollback, restored backups and forks.
#include "coordinator/offline/lineage.h"

#include <future>

#include "absl/strings/match.h"
#include "coordinator/offline/replay.h"
#include "coordinator/offline/run_copy.h"
#include "coordinator/store/state_dir.h"
#include "tests/component/coordinator/offline_run.h"

namespace diloco {
namespace {

using Code = absl::StatusCode;

const std::string kLineage(16, 'L');

// The next version of a run whose workers come from another lineage.
void GoOn(TestRun& run, const Fencing& before, uint64_t version) {
  run.sessions.clear();
  run.JoinAll(before);
  REQUIRE(run.sessions.size() == 2);
  run.DeliverAll();
  REQUIRE(run.AwaitVersion(version).ok());
}

TEST_CASE("a run goes on from the version it was rolled back to") {
  OfflineRun offline(/*segment_bytes=*/1000);
  TestRun& run = offline.run;
  const Fencing before = run.coordinator->fencing();
  CHECK(RollBack(&run.fs, kStateDir, 3, kLineage).status().code() ==
        Code::kFailedPrecondition);  // Its coordinator runs.
  run.End();
  const uint64_t to = GENERATE(2, 3, 5);
  const auto rolled = RollBack(&run.fs, kStateDir, to, kLineage);
  INFO(rolled.status());
  REQUIRE(rolled.ok());
  CHECK(rolled->fragments[0].digest == offline.digests[to - 1]);
  CHECK(offline.Problem() == "");

  REQUIRE(run.Start().ok());
  CHECK(run.digest() == offline.digests[to - 1]);
  CHECK(run.Status().fragments[0].version == to);
  CHECK(run.coordinator->fencing().lineage == kLineage);
  GoOn(run, before, to + 1);
  const Digest digest = run.digest();
  const uint64_t tokens = run.Status().folded_tokens;
  CHECK(tokens == rolled->folded_tokens + tokens / (to + 1));
  run.End();
  CHECK(offline.Problem() == "");
  const auto archive = offline.Archive();
  for (const RoundRecord& round : archive->rounds()) {
    // Round 6 was open when it ended.
    CHECK(round.undone == (round.opened.round > to && round.opened.round <= 6));
  }
  REQUIRE(run.Start().ok());
  CHECK(run.digest() == digest);
}

TEST_CASE("a rollback that needs a damaged blob fails as damage") {
  OfflineRun offline;
  offline.run.End();
  offline.run.fs.FlipBit("state/blobs/f00-v000005.blob", 200, 0);
  const absl::Status status =
      RollBack(&offline.run.fs, kStateDir, 5, kLineage).status();
  INFO(status);
  CHECK(status.code() == Code::kDataLoss);
  CHECK(absl::StrContains(status.message(), "f00-v000005.blob"));
}

TEST_CASE("a rollback on a full disk leaves nothing behind") {
  OfflineRun offline;
  TestRun& run = offline.run;
  run.End();
  run.fs.set_space(run.fs.bytes_used() + 100);
  const absl::Status status =
      RollBack(&run.fs, kStateDir, 3, kLineage).status();
  INFO(status);
  CHECK(status.code() == Code::kResourceExhausted);
  CHECK(run.FilesWith(".tmp").empty());
  CHECK(offline.Problem() == "");
  run.fs.set_space(UINT64_MAX);
  CHECK(RollBack(&run.fs, kStateDir, 3, kLineage).ok());
}

TEST_CASE("a backup is not rolled back in place") {
  OfflineRun offline;
  REQUIRE(BackUp(&offline.run.fs, kStateDir, "copy", IgnoreProgress).ok());
  const absl::Status status =
      RollBack(&offline.run.fs, "copy", 3, kLineage).status();
  CHECK(status.code() == Code::kFailedPrecondition);
  CHECK(absl::StrContains(status.message(), "restore"));
  CHECK(offline.Archive("copy")->state().fragments[0].version == 5);
}

TEST_CASE("an older copy of the state is named when a newer worker beats") {
  OfflineRun offline;
  TestRun& run = offline.run;
  WorkerProgress progress;
  const auto beat = [&](uint64_t version) {
    progress.version = version;
    std::promise<absl::Status> status;
    run.coordinator->Beat(run.sessions["a"], Fencing(), progress,
                          [&](const absl::StatusOr<uint64_t>& revision) {
                            status.set_value(revision.status());
                          });
    return status.get_future().get();
  };
  CHECK(beat(5).ok());
  const absl::Status ahead = beat(6);
  CHECK(ahead.code() == Code::kFailedPrecondition);
  CHECK(absl::StrContains(ahead.message(), "older copy"));
  // Not even a new start goes on there.
  run.End();
  const absl::Status refused = run.Start();
  CHECK(refused.code() == Code::kFailedPrecondition);
  CHECK(absl::StrContains(refused.message(), "state/SUPERSEDED"));
  CHECK(absl::StrContains(refused.message(), "worker a holds version 6"));
  CHECK(absl::StrContains(refused.message(), "dilococtl restore"));
  // A copy in a lineage of its own does.
  REQUIRE(RestoreBackup(&run.fs, kStateDir, "restored", kLineage,
                        /*accept_loss=*/false, IgnoreProgress)
              .ok());
  run.options.state_dir = "restored";
  CHECK(run.Start().ok());
}

TEST_CASE("what belongs to the lineage before is told to join again") {
  OfflineRun offline;
  TestRun& run = offline.run;
  const Fencing before = run.coordinator->fencing();
  run.End();
  REQUIRE(RollBack(&run.fs, kStateDir, 3, kLineage).ok());
  int told = 0;
  run.options.on_superseded = [&told] { ++told; };
  REQUIRE(run.Start().ok());
  const auto watch = [&](const Fencing& fencing) {
    std::promise<absl::Status> status;
    run.coordinator->Watch(run.sessions["a"], fencing, 0, absl::ZeroDuration(),
                           [&](const absl::StatusOr<ViewOutcome>& view) {
                             status.set_value(view.status());
                           });
    return status.get_future().get();
  };
  CHECK(watch(before).code() == Code::kUnauthenticated);
  // A session of before is nobody's, whatever fencing comes with it.
  CHECK(watch(run.coordinator->fencing()).code() == Code::kUnauthenticated);
  Fencing foreign = before;
  foreign.lineage = std::string(16, 'f');
  CHECK(watch(foreign).code() == Code::kFailedPrecondition);
  CHECK(told == 0);
  // Who has seen a later start of this run, or another process at this one.
  Fencing later = run.coordinator->fencing();
  ++later.epoch;
  const absl::Status superseded = watch(later);
  CHECK(superseded.code() == Code::kFailedPrecondition);
  CHECK(absl::StrContains(superseded.message(), "older copy"));
  // From then on nobody is served, until the process ends.
  CHECK(watch(run.coordinator->fencing()).code() == Code::kFailedPrecondition);
  Fencing twin = run.coordinator->fencing();
  twin.boot_nonce = "87654321";
  CHECK(watch(twin).code() == Code::kFailedPrecondition);
  CHECK(told == 1);
}

TEST_CASE("a rollback that ends anywhere is done or not done") {
  OfflineRun offline(/*segment_bytes=*/1000);
  TestRun& run = offline.run;
  run.End();
  const int before = run.fs.mutations();
  for (int step = 1;; ++step) {
    INFO("ended at step " << step);
    run.fs.StopAfter(step);
    const absl::Status status =
        RollBack(&run.fs, kStateDir, 3, kLineage).status();
    const bool done = status.ok();
    INFO(status);
    REQUIRE(step < 200);
    run.fs.Crash();
    CHECK(offline.Problem() == "");
    const uint64_t version = offline.Archive()->state().fragments[0].version;
    if (done) {
      CHECK(version == 3);
      CHECK(step > 5);
      break;
    }
    // The fact may be durable although nobody was told so.
    if (version == 3) continue;
    REQUIRE(version == 5);
    REQUIRE(run.Start().ok());
    REQUIRE(run.digest() == offline.digests[4]);
    run.End();
    run.fs.Crash();
  }
  CHECK(run.fs.mutations() > before);
}

TEST_CASE("a restored backup goes on in a lineage of its own") {
  OfflineRun offline(/*segment_bytes=*/1000);
  TestRun& run = offline.run;
  const Fencing before = run.coordinator->fencing();
  // One of two updates of round 6 is in.
  REQUIRE(run.Deliver("a", run.NextUpdate("a")).ok());
  REQUIRE(BackUp(&run.fs, kStateDir, "copy", IgnoreProgress).ok());
  REQUIRE(run.Deliver("b", run.NextUpdate("b")).ok());
  REQUIRE(run.AwaitVersion(6).ok());
  run.End();
  const auto restored = RestoreBackup(&run.fs, "copy", "again", kLineage,
                                      /*accept_loss=*/false, IgnoreProgress);
  INFO(restored.status());
  REQUIRE(restored.ok());
  CHECK(absl::StrContains(restored->reason, "1 accepted updates"));
  CHECK(RestoreBackup(&run.fs, "copy", "again", kLineage, /*accept_loss=*/false,
                      IgnoreProgress)
            .status()
            .code() == Code::kAlreadyExists);
  CHECK(offline.Problem("again") == "");
  run.options.state_dir = "again";
  REQUIRE(run.Start().ok());
  CHECK(run.digest() == offline.digests[4]);
  GoOn(run, before, 6);
}

TEST_CASE("C7.2 what is before damage of the journal is saved on demand") {
  OfflineRun offline(/*segment_bytes=*/400);
  TestRun& run = offline.run;
  const Fencing before = run.coordinator->fencing();
  run.End();
  const std::vector<std::string> segments = run.FilesWith("journal-");
  REQUIRE(segments.size() > 6);
  const std::string path = JoinPath(
      kStateDir, SegmentName(static_cast<uint32_t>(segments.size() - 3)));
  const std::string content = ReadFile(&run.fs, path).value();
  SECTION("a bit flipped") { run.fs.FlipBit(path, content.size() / 2, 1); }
  SECTION("a segment gone") { REQUIRE(run.fs.Remove(path).ok()); }
  SECTION("an empty segment") {
    REQUIRE(WriteFileAtomic(&run.fs, path, "").ok());
  }
  const absl::Status refused = run.Start();
  INFO(refused);
  CHECK(refused.code() == Code::kDataLoss);
  CHECK(absl::StrContains(refused.message(), path));
  CHECK(absl::StrContains(refused.message(), "record "));
  CHECK(absl::StrContains(refused.message(), "restore --accept-loss"));
  run.End();
  CHECK(RestoreBackup(&run.fs, kStateDir, "saved", kLineage,
                      /*accept_loss=*/false, IgnoreProgress)
            .status()
            .code() == Code::kDataLoss);
  const auto saved = RestoreBackup(&run.fs, kStateDir, "saved", kLineage,
                                   /*accept_loss=*/true, IgnoreProgress);
  INFO(saved.status());
  REQUIRE(saved.ok());
  CHECK(absl::StrContains(saved->reason, "is lost"));
  const uint64_t version = saved->fragments[0].version;
  REQUIRE(version >= 1);
  REQUIRE(version < 5);
  CHECK(offline.Problem("saved") == "");
  run.options.state_dir = "saved";
  REQUIRE(run.Start().ok());
  CHECK(run.digest() == offline.digests[version - 1]);
  GoOn(run, before, version + 1);
}

TEST_CASE("C7.2 before damage of the journal, what can be rebuilt is saved") {
  OfflineRun offline(/*segment_bytes=*/400);
  TestRun& run = offline.run;
  const Fencing before = run.coordinator->fencing();
  run.End();
  const std::vector<std::string> segments = run.FilesWith("journal-");
  const std::string path = JoinPath(
      kStateDir, SegmentName(static_cast<uint32_t>(segments.size() / 2)));
  run.fs.FlipBit(path, ReadFile(&run.fs, path)->size() / 2, 1);
  const uint64_t known = (*RunArchive::ReadToDamage(&run.fs, kStateDir))
                             ->state()
                             .fragments[0]
                             .version;
  REQUIRE(known >= 1);
  REQUIRE(known < 4);
  const auto remove = [&](const std::string& part) {
    const std::vector<std::string> doomed = run.FilesWith(part);
    REQUIRE_FALSE(doomed.empty());
    for (const std::string& file : doomed) REQUIRE(run.fs.Remove(file).ok());
  };
  uint64_t version = known;
  Digest digest;
  std::string reason;
  SECTION("the updates that lead on from an image are gone") {
    version = known / 2 * 2;  // The image before.
    if (version == known) {
      remove(absl::StrCat("f00-v00000", version, "."));
      version -= 2;
    }
    remove("spool/");
    digest = version == 0 ? (*RunArchive::ReadToDamage(&run.fs, kStateDir))
                                ->created()
                                .fragments[0]
                                .digest
                          : offline.digests[version - 1];
    reason = absl::StrCat("versions ", version + 1, " to ", known,
                          " of fragment 0 cannot be rebuilt");
  }
  SECTION("no image is left of those that the journal tells of") {
    for (uint64_t v = 0; v <= known; v += 2) {
      remove(absl::StrCat("images/f00-v00000", v, "."));
    }
    digest = offline.digests[3];
    reason =
        absl::StrCat("of the image of version 4, under the number ", known);
  }
  const auto saved = RestoreBackup(&run.fs, kStateDir, "saved", kLineage,
                                   /*accept_loss=*/true, IgnoreProgress);
  INFO(saved.status());
  REQUIRE(saved.ok());
  INFO(saved->reason);
  CHECK(absl::StrContains(saved->reason, reason));
  CHECK(saved->fragments[0].version == version);
  CHECK(saved->fragments[0].digest == digest);
  CHECK(offline.Problem("saved") == "");
  run.options.state_dir = "saved";
  REQUIRE(run.Start().ok());
  CHECK(run.digest() == digest);
  GoOn(run, before, version + 1);
  run.End();
  CHECK(offline.Problem("saved") == "");
}

TEST_CASE("C7.2 where no image can be read the way on is named") {
  OfflineRun offline(/*segment_bytes=*/400);
  TestRun& run = offline.run;
  run.End();
  const std::string last = run.FilesWith("journal-").back();
  run.fs.FlipBit(last, ReadFile(&run.fs, last)->size() / 2, 1);
  for (const std::string& file : run.FilesWith("images/")) {
    REQUIRE(run.fs.Remove(file).ok());
  }
  const absl::Status status =
      RestoreBackup(&run.fs, kStateDir, "saved", kLineage,
                    /*accept_loss=*/true, IgnoreProgress)
          .status();
  INFO(status);
  CHECK(status.code() == Code::kNotFound);
  CHECK(absl::StrContains(status.message(), "restore a backup"));
  CHECK_FALSE(absl::StrContains(status.message(), ".tmp"));
}

TEST_CASE("a fork begins with theta and momentum of another run's version") {
  OfflineRun offline;
  TestRun& run = offline.run;
  ForkTarget target;
  target.state_dir = "forked/";
  target.run = "forked";
  target.settings_text = "a = b\n";
  target.settings_digest = Sha256(target.settings_text);
  target.layout_digest = run.options.layout.ComputeDigest();
  const auto created = Fork(&run.fs, kStateDir, 4, target, kLineage);
  INFO(created.status());
  REQUIRE(created.ok());
  CHECK(Fork(&run.fs, kStateDir, 4, target, kLineage).status().code() ==
        Code::kAlreadyExists);
  target.state_dir = "state/images/forked";
  CHECK(Fork(&run.fs, kStateDir, 4, target, kLineage).status().code() ==
        Code::kInvalidArgument);
  target.state_dir = "other";
  target.layout_digest = Sha256("other model");
  CHECK(Fork(&run.fs, kStateDir, 4, target, kLineage).status().code() ==
        Code::kInvalidArgument);
  const auto origin = ValuesAt(*offline.Archive(), 0, 4);
  const auto begun = ValuesAt(*offline.Archive("forked"), 0, 0);
  REQUIRE(begun.ok());
  CHECK(begun->theta == origin->theta);
  CHECK(begun->momentum == origin->momentum);
  CHECK(begun->momentum[0] != 0);

  run.End();
  run.options.state_dir = "forked";
  run.options.run = "forked";
  run.options.settings_text = target.settings_text;
  run.options.settings_digest = target.settings_digest;
  REQUIRE(run.Start().ok());
  CHECK(run.digest() == offline.digests[3]);
  run.sessions.clear();
  run.JoinAll();
  run.DeliverAll();
  CHECK(run.AwaitVersion(1).ok());
}

}  // namespace
}  // namespace diloco

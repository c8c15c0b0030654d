// No space for one kind of file, and the floor of free space.
#include <future>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/component/coordinator/test_run.h"
#include "tests/support/catch.h"
#include "tests/support/sample_update.h"

namespace diloco {
namespace {

using Code = absl::StatusCode;

void Advance(TestRun& run, uint64_t version) {
  while (run.Status().fragments[0].version < version) {
    const uint64_t next = run.Status().fragments[0].version + 1;
    run.DeliverAll();
    REQUIRE(run.AwaitVersion(next).ok());
  }
}

Digest CalmDigest(uint64_t version) {
  TestRun run(2);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  Advance(run, version);
  return run.digest();
}

absl::Status BeatOf(TestRun& run, const std::string& worker) {
  std::promise<absl::Status> done;
  run.coordinator->Beat(
      run.sessions[worker], Fencing(), WorkerProgress(),
      [&](absl::StatusOr<uint64_t> beat) { done.set_value(beat.status()); });
  return done.get_future().get();
}

// Sends until it is taken; what the worker was told meanwhile.
std::vector<absl::Status> Insist(TestRun& run, const std::string& worker,
                                 const TestUpdate& update) {
  std::vector<absl::Status> told;
  while (true) {
    const absl::StatusOr<FinishOutcome> outcome = run.Deliver(worker, update);
    if (outcome.ok()) return told;
    told.push_back(outcome.status());
    std::this_thread::yield();
  }
}

TEST_CASE("C7.1 a full disk at any write is told, and is over by itself") {
  const std::string file = GENERATE(as<std::string>(), "journal-", ".part",
                                    ".blob", ".theta", ".momentum");
  INFO(file);
  const Digest expected = CalmDigest(2);
  TestRun run(2);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  Advance(run, 1);
  const TestUpdate a = run.NextUpdate("a");
  const TestUpdate b = run.NextUpdate("b");

  // The next version has images.
  run.fs.set_full(file);
  auto sent_a =
      std::async(std::launch::async, [&] { return Insist(run, "a", a); });
  auto sent_b =
      std::async(std::launch::async, [&] { return Insist(run, "b", b); });
  const std::string trouble = run.AwaitTrouble();
  CHECK(absl::StrContains(trouble, "no space left"));
  CHECK(absl::StrContains(trouble, file));
  const StatusReport status = run.Status();
  CHECK(absl::StrContains(status.not_ready, "no space left"));
  CHECK(status.fragments[0].version == 1);
  if (file == "journal-") {
    run.clock.Advance(absl::Seconds(6));
    const absl::Status told = BeatOf(run, "a");
    CHECK(told.code() == Code::kUnavailable);
    CHECK(absl::StrContains(told.message(), "waits for disk space"));
  } else {
    const absl::StatusOr<ViewOutcome> view = run.View("a");
    REQUIRE(view.ok());
    CHECK(absl::StrContains(view->view.notice, "waits for disk space"));
  }
  CHECK(run.fatal().ok());

  run.fs.set_full("");
  // One of them may have come when it was over.
  std::vector<absl::Status> told = sent_a.get();
  for (const absl::Status& status : sent_b.get()) told.push_back(status);
  if (file == ".part") {
    REQUIRE_FALSE(told.empty());
    CHECK(told[0].code() == Code::kResourceExhausted);
  }
  REQUIRE(run.AwaitVersion(2).ok());
  CHECK(run.digest() == expected);
  CHECK(run.coordinator->NotReady().empty());
  CHECK(run.Status().workers[0].rounds_folded == 2);
  // And what it wrote is durable.
  run.End();
  run.fs.Crash();
  REQUIRE(run.Start().ok());
  CHECK(run.digest() == expected);
}

TEST_CASE("uploads that cannot be begun are told, and it is over by itself") {
  TestRun run(2);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  Advance(run, 1);
  // In the way of the round's directory, as a disk that became read-only.
  const std::string dir = "state/spool/f00-r000002";
  REQUIRE(WriteFileAtomic(&run.fs, dir, "").ok());
  const TestUpdate a = run.NextUpdate("a");
  CHECK_FALSE(run.Deliver("a", a).ok());
  CHECK(absl::StrContains(run.coordinator->NotReady(), dir));
  REQUIRE(run.fs.Remove(dir).ok());
  CHECK(run.Deliver("a", a).ok());
  CHECK(run.coordinator->NotReady().empty());
  CHECK(run.fatal().ok());
}

// A run at version 8 with five images, paused; what a round of it needs.
struct Grown {
  Grown() : run(2) {
    run.options.keep_every = 0;
    run.options.keep_free_bytes = 100'000;
    REQUIRE(run.Start().ok());
    run.JoinAll();
    Advance(run, 7);
    run.Pause(true);
    Advance(run, 8);
    const int64_t elements = run.options.layout.elements;
    image = PartFileBytes(Codec::kFp32, elements);
    round = 2 * PartFileBytes(run.options.policy.codec_up, elements) +
            PartFileBytes(run.options.settings.codec_down, elements) +
            2 * image;
    // What no start needs goes before any image does.
    SetFree(round + run.options.keep_free_bytes - 1);
    while (run.fs.Exists("state/spool/f00-r000006")) std::this_thread::yield();
  }
  void SetFree(uint64_t bytes) {
    run.fs.set_space(run.fs.bytes_used() + bytes);
    run.clock.Advance(absl::Seconds(1));
  }
  std::vector<std::string> Images() {
    std::vector<std::string> images = run.FilesWith(".theta");
    for (std::string& path : images) path = path.substr(path.find("-v") + 2, 6);
    return images;
  }

  TestRun run;
  uint64_t image = 0;
  uint64_t round = 0;
};

TEST_CASE("under the floor of free space the oldest images go first") {
  Grown grown;
  TestRun& run = grown.run;
  REQUIRE(grown.Images().size() == 5);
  // An image is two files, and takes two blobs of its size along: two will do.
  grown.SetFree(grown.round + run.options.keep_free_bytes - 5 * grown.image);
  run.Pause(false);
  while (run.Status().fragments[0].open_round != 9) std::this_thread::yield();
  CHECK(grown.Images() ==
        std::vector<std::string>{"000004", "000006", "000008"});
  CHECK(run.coordinator->NotReady().empty());
  Advance(run, 9);
}

TEST_CASE("under the floor no round opens when no image is left to go") {
  Grown grown;
  TestRun& run = grown.run;
  grown.SetFree(grown.round);
  run.Pause(false);
  const std::string trouble = run.AwaitTrouble("keep.free_space");
  CHECK(absl::StrContains(trouble, "waiting for disk space"));
  // Those that a start needs stay.
  CHECK(grown.Images() == std::vector<std::string>{"000006", "000008"});
  const StatusReport waiting = run.Status();
  CHECK(waiting.fragments[0].open_round == 0);
  CHECK(absl::StrContains(run.View("a")->view.notice, "keep.free_space"));
  run.fs.set_space(UINT64_MAX);
  run.clock.Advance(absl::Seconds(1));
  while (run.Status().fragments[0].open_round != 9) std::this_thread::yield();
  Advance(run, 9);
  CHECK(run.coordinator->NotReady().empty());
}

TEST_CASE("for space the images of keep.every go after all others") {
  Grown grown;
  TestRun& run = grown.run;
  run.End();
  run.options.keep_every = 4;
  REQUIRE(run.Start().ok());
  run.JoinAll();
  run.Pause(true);
  grown.SetFree(grown.round + run.options.keep_free_bytes - 1);
  run.Pause(false);
  while (run.Status().fragments[0].open_round != 9) std::this_thread::yield();
  CHECK(grown.Images() ==
        std::vector<std::string>{"000000", "000004", "000006", "000008"});
}

TEST_CASE("a start on a full disk waits, says so and goes on by itself") {
  TestRun run(2);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  Advance(run, 1);
  const Digest digest = run.digest();
  const uint64_t epoch = run.Status().fencing.epoch;
  run.End();
  run.fs.set_full("journal-");
  // Without anybody who waits it ends, and nothing has changed.
  CHECK(run.Start().code() == Code::kResourceExhausted);
  run.fs.KillProcess();
  std::vector<std::string> told;
  run.options.wait_for_space = [&](const std::string& why) {
    told.push_back(why);
    if (told.size() == 3) run.fs.set_full("");
    return true;
  };
  REQUIRE(run.Start().ok());
  REQUIRE(told.size() == 3);
  CHECK(absl::StrContains(told[0], "the start waits for disk space"));
  CHECK(absl::StrContains(told[0], "journal-"));
  CHECK(run.Status().fencing.epoch == epoch + 1);
  CHECK(run.digest() == digest);
  run.JoinAll();
  Advance(run, 2);
  // Asked to stop instead.
  run.End();
  run.fs.set_full("journal-");
  run.options.wait_for_space = [](const std::string&) { return false; };
  CHECK(run.Start().code() == Code::kResourceExhausted);
}

TEST_CASE("the file system is asked for its free space once a second") {
  TestRun run(1);
  int asked = 0;
  run.fs.hook = [&](HookedFileSystem::Call call, const std::string&) {
    asked += call == HookedFileSystem::Call::kFreeBytes;
  };
  REQUIRE(run.Start().ok());
  run.JoinAll();
  for (int i = 0; i < 20; ++i) REQUIRE(run.View("a").ok());
  const int before = run.Status().not_ready.empty() ? asked : 0;
  CHECK(before == 1);
  run.clock.Advance(absl::Seconds(1));
  for (int i = 0; i < 20; ++i) REQUIRE(run.View("a").ok());
  CHECK(asked == 2);
}

TEST_CASE("what a reader resolved stays when retention would take it") {
  TestRun run(2);
  run.options.keep_images = 2;
  run.options.keep_every = 0;
  REQUIRE(run.Start().ok());
  run.JoinAll();
  Advance(run, 1);
  std::promise<absl::StatusOr<ResolveOutcome>> resolved;
  run.coordinator->ResolveForExport(
      0, [&](auto outcome) { resolved.set_value(std::move(outcome)); });
  const absl::StatusOr<ResolveOutcome> chain = resolved.get_future().get();
  REQUIRE(chain.ok());
  REQUIRE(chain->steps.size() == 2);  // Image 0, blob 1.
  Advance(run, 9);
  CHECK(run.FilesWith("v000002.blob").empty());
  for (const VersionStore::Step& step : chain->steps) {
    INFO("version " << step.version);
    const absl::StatusOr<ServedFile> served =
        run.coordinator->FindFile(step.file.digest);
    REQUIRE(served.ok());
    CHECK(run.fs.Exists(served->path));
  }
}

}  // namespace
}  // namespace diloco

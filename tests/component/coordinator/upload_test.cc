// Uploads through the whole coordinator: races, repeats, disks that fail.
#include <atomic>
#include <future>
#include <thread>

#include "absl/strings/match.h"
#include "tests/component/coordinator/test_run.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

using Call = HookedFileSystem::Call;
using Code = absl::StatusCode;
using Kind = UploadVerdict::Kind;

bool IsSpool(const std::string& path) {
  return absl::StrContains(path, "spool/");
}

// Digest of version 1 when both updates are folded.
Digest CalmDigest() {
  TestRun run(2);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  run.DeliverAll();
  REQUIRE(run.AwaitVersion(1).ok());
  return run.digest();
}

void Begun(TestRun& run, const std::string& worker, const TestUpdate& update) {
  const auto begun = run.Begin(worker, update);
  REQUIRE(begun.ok());
  REQUIRE(begun->kind == Kind::kSend);
  REQUIRE_FALSE(begun->queued);
  REQUIRE(run.Send(worker, update, begun->offset).ok());
}

TEST_CASE("C6.1 an update that is being committed cannot be replaced") {
  TestRun run(2);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  const TestUpdate first = run.NextUpdate("a");
  const TestUpdate other = run.NextUpdate("a", 2);
  Begun(run, "a", first);
  int tries = 0;
  run.fs.hook = [&](Call call, const std::string& path) {
    if (call != Call::kSyncDir || !IsSpool(path)) return;
    ++tries;
    const auto begun = run.Begin("a", other);
    REQUIRE(begun.ok());
    CHECK(begun->queued);
    CHECK(run.Finish("a", first).status().code() == Code::kUnavailable);
  };
  REQUIRE(run.Finish("a", first)->kind == Kind::kAccepted);
  CHECK(tries == 1);
  run.fs.hook = nullptr;
  CHECK(run.Begin("a", other).status().code() == Code::kAlreadyExists);
  CHECK(run.Finish("a", other).status().code() == Code::kAlreadyExists);
  REQUIRE(run.Deliver("b", run.NextUpdate("b"))->kind == Kind::kAccepted);
  REQUIRE(run.AwaitVersion(1).ok());
  CHECK(run.digest() == CalmDigest());
}

TEST_CASE("C6.1 an update that is being replaced cannot be committed") {
  TestRun run(2);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  const TestUpdate first = run.NextUpdate("a", 2);
  const TestUpdate second = run.NextUpdate("a");
  Begun(run, "a", first);
  const auto old =
      run.coordinator->OpenUpload(run.sessions["a"], Fencing(), 0, first.round);
  REQUIRE(old.ok());
  int tries = 0;
  // The new one was judged and is being opened.
  run.fs.hook = [&](Call call, const std::string& path) {
    if (call != Call::kCreateDirs || !IsSpool(path)) return;
    ++tries;
    CHECK(run.Finish("a", first).status().code() == Code::kUnavailable);
  };
  const auto begun = run.Begin("a", second);
  run.fs.hook = nullptr;
  REQUIRE(begun.ok());
  CHECK(tries == 1);
  CHECK(begun->offset == 0);
  CHECK((*old)->Write(first.bytes.size(), "x").code() == Code::kCancelled);
  CHECK(run.Finish("a", first).status().code() == Code::kAlreadyExists);
  REQUIRE(run.Send("a", second, 0).ok());
  REQUIRE(run.Finish("a", second)->kind == Kind::kAccepted);
  REQUIRE(run.Deliver("b", run.NextUpdate("b"))->kind == Kind::kAccepted);
  REQUIRE(run.AwaitVersion(1).ok());
  CHECK(run.digest() == CalmDigest());
}

TEST_CASE("C6.1 every repeat gets the receipt of its own record") {
  TestRun run(2);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  const TestUpdate a = run.NextUpdate("a"), b = run.NextUpdate("b");
  const auto first_a = run.Deliver("a", a);
  // This one closes the round, so that more facts follow in its batch.
  const auto first_b = run.Deliver("b", b);
  REQUIRE(first_a.ok());
  REQUIRE(first_b.ok());
  REQUIRE(run.AwaitVersion(1).ok());
  const auto check = [&] {
    for (const EventReport& event : run.Events()) {
      const auto* fact = std::get_if<UpdateCommitted>(&event.fact);
      if (fact == nullptr) continue;
      const bool is_a = fact->worker == "a";
      CHECK(event.sequence == (is_a ? first_a : first_b)->sequence);
    }
    for (int i = 0; i < 3; ++i) {
      for (const std::string worker : {"a", "b"}) {
        const TestUpdate& update = worker == "a" ? a : b;
        const uint64_t sequence = (worker == "a" ? first_a : first_b)->sequence;
        const auto finished = run.Finish(worker, update);
        REQUIRE(finished.ok());
        CHECK(finished->kind == Kind::kAccepted);
        CHECK(finished->sequence == sequence);
        const auto begun = run.Begin(worker, update);
        REQUIRE(begun.ok());
        CHECK(begun->kind == Kind::kAccepted);
        CHECK(begun->sequence == sequence);
      }
    }
    CHECK(absl::StrContains(
        run.metrics->Text(),
        "diloco_coordinator_updates_total{result=\"duplicate\"} 12"));
  };
  check();
  run.End();
  REQUIRE(run.Start().ok());
  check();
}

TEST_CASE("C7.1 a write of a spool that fails costs that upload, no more") {
  TestRun run(2);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  const TestUpdate update = run.NextUpdate("a");
  REQUIRE(run.Begin("a", update).ok());
  REQUIRE(run.Send("a", update, 0, 1500).ok());
  run.fs.FailWrite(1, /*keep_bytes=*/100);
  CHECK(run.Send("a", update, 1500).code() == Code::kUnavailable);
  // Not by accident: it stays dead until it is begun again.
  CHECK(run.Send("a", update, 1500).code() == Code::kUnavailable);
  CHECK(run.Finish("a", update).status().code() == Code::kUnavailable);
  const auto begun = run.Begin("a", update);
  REQUIRE(begun.ok());
  CHECK(begun->offset == 0);
  REQUIRE(run.Send("a", update, 0).ok());
  REQUIRE(run.Finish("a", update)->kind == Kind::kAccepted);
  REQUIRE(run.Deliver("b", run.NextUpdate("b"))->kind == Kind::kAccepted);
  REQUIRE(run.AwaitVersion(1).ok());
  CHECK(run.fatal().ok());
  CHECK(run.digest() == CalmDigest());
}

TEST_CASE("C7.1 a failed fsync of a spool ends the process and says so") {
  const int which = GENERATE(1, 2);  // Of the file, of the directory.
  TestRun run(2);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  const TestUpdate update = run.NextUpdate("a");
  Begun(run, "a", update);
  run.fs.FailSync(which);
  CHECK_FALSE(run.Finish("a", update).ok());
  INFO(run.fatal());
  CHECK(absl::StrContains(run.fatal().message(), "cannot sync"));
  CHECK(absl::StrContains(run.fatal().message(), "spool/f00-r000001/a."));
  run.End();
  REQUIRE(run.Start().ok());
  const auto begun = run.Begin("a", update);
  REQUIRE(begun.ok());
  CHECK(begun->kind == Kind::kSend);
  CHECK(begun->offset == 0);
  run.DeliverAll();
  REQUIRE(run.AwaitVersion(1).ok());
  CHECK(run.digest() == CalmDigest());
}

TEST_CASE("C7.1 without room for an update the run is not ready and waits") {
  TestRun run(2);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  CHECK(run.coordinator->NotReady() == "");
  const TestUpdate update = run.NextUpdate("a");
  run.fs.set_space(run.fs.bytes_used() + 500);
  CHECK(run.Begin("a", update).status().code() == Code::kResourceExhausted);
  CHECK(absl::StrContains(run.coordinator->NotReady(), "no space left"));
  CHECK(run.Begin("a", update).status().code() == Code::kResourceExhausted);
  run.fs.set_space(UINT64_MAX);
  run.DeliverAll();
  CHECK(run.coordinator->NotReady() == "");
  REQUIRE(run.AwaitVersion(1).ok());
  CHECK(run.digest() == CalmDigest());
}

TEST_CASE("C6.3 an open upload ends with its round") {
  TestRun run(2);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  const TestUpdate update = run.NextUpdate("b");
  Begun(run, "b", update);
  const auto upload = run.coordinator->OpenUpload(run.sessions["b"], Fencing(),
                                                  0, update.round);
  REQUIRE(upload.ok());
  REQUIRE(run.Deliver("a", run.NextUpdate("a"))->kind == Kind::kAccepted);
  run.clock.Advance(absl::Minutes(11));
  REQUIRE(run.AwaitVersion(1).ok());
  CHECK((*upload)->Write(update.bytes.size(), "x").code() == Code::kCancelled);
  CHECK(run.Finish("b", update).status().code() == Code::kAborted);
  CHECK(run.Begin("b", update)->kind == Kind::kLate);
}

TEST_CASE("more uploads than allowed wait for their turn") {
  TestRun run(2);
  run.options.max_parallel_uploads = 1;
  REQUIRE(run.Start().ok());
  run.JoinAll();
  const TestUpdate a = run.NextUpdate("a"), b = run.NextUpdate("b");
  REQUIRE_FALSE(run.Begin("a", a)->queued);
  CHECK(run.Begin("b", b)->queued);
  REQUIRE_FALSE(run.Begin("a", a)->queued);
  // One that does not send holds no slot.
  run.clock.Advance(absl::Seconds(31));
  CHECK_FALSE(run.Begin("b", b)->queued);
  CHECK(run.Begin("a", a).ok());
}

TEST_CASE("a slow disk under one upload holds up nobody else") {
  TestRun run(3);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  const TestUpdate a = run.NextUpdate("a");
  Begun(run, "a", a);
  std::promise<void> blocked, release;
  std::atomic<bool> once{false};
  run.fs.hook = [&](Call call, const std::string& path) {
    if (call != Call::kSyncDir || !IsSpool(path) || once.exchange(true)) return;
    blocked.set_value();
    release.get_future().wait();
  };
  absl::StatusOr<FinishOutcome> finished = absl::UnknownError("not yet");
  std::thread slow([&] { finished = run.Finish("a", a); });
  blocked.get_future().wait();
  // Others begin, deliver and the round closes at its deadline.
  REQUIRE(run.Begin("c", run.NextUpdate("c"))->kind == Kind::kSend);
  REQUIRE(run.Deliver("b", run.NextUpdate("b"))->kind == Kind::kAccepted);
  CHECK(run.Begin("a", a)->queued);
  run.clock.Advance(absl::Minutes(11));
  CHECK(run.AwaitVersion(1).ok());
  release.set_value();
  slow.join();
  REQUIRE(finished.ok());
  CHECK(finished->kind == Kind::kLate);
}

TEST_CASE("updates are folded in the order of names, not of arrival") {
  TestRun run(3);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  const Digest before = run.digest();
  // In doubles, (big - big) + 1 is 1, and (1 - big) + big is 0.
  const std::map<std::string, float> values = {
      {"a", 1e28f}, {"b", -1e28f}, {"c", 1.0f}};
  for (const char* worker : {"c", "b", "a"}) {
    const absl::StatusOr<ViewOutcome> view = run.View(worker);
    REQUIRE(view.ok());
    const TestUpdate update = run.UpdateOf(
        view->view.leases[0],
        std::vector<float>(static_cast<size_t>(run.options.layout.elements),
                           values.at(worker)));
    REQUIRE(run.Deliver(worker, update)->kind ==
            UploadVerdict::Kind::kAccepted);
  }
  REQUIRE(run.AwaitVersion(1).ok());
  CHECK(run.digest() != before);
}

}  // namespace
}  // namespace diloco

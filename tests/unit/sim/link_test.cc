// The worker's link on fibers: what it does while nothing else happens.
#include "worker/runtime/link.h"

#include "common/base/fiber_world.h"
#include "tests/support/catch.h"

namespace diloco::sim {
namespace {

// Shows one view, then answers nothing new.
class QuietPort final : public CoordinatorPort {
 public:
  explicit QuietPort(FiberWorld* world) : world_(world) {}

  absl::StatusOr<RunView> Watch(uint64_t known, absl::Duration wait) override {
    if (known != 0) {
      const Instant end = world_->Now() + wait;
      while (world_->Now() < end && !shut_down_) {
        world_->Sleep(absl::Milliseconds(10));
      }
    }
    if (shut_down_) return absl::CancelledError("shut down");
    RunView view;
    view.revision = 1;
    view.fragments.push_back({0, /*version=*/5, Digest(), 0});
    return view;
  }
  absl::StatusOr<uint64_t> Report(const ProgressReport&) override { return 1; }
  void Shutdown() override { shut_down_ = true; }

  absl::StatusOr<JoinReply> Join(const JoinCall&) override { return Unused(); }
  absl::StatusOr<std::vector<RemoteFile>> Resolve(
      uint32_t, std::optional<uint64_t>) override {
    return Unused();
  }
  absl::Status ReportEval(uint64_t, uint32_t, double, uint64_t) override {
    return Unused();
  }
  absl::Status Leave(const std::string&) override { return Unused(); }
  absl::StatusOr<UploadOutcome> Upload(const UpdateOffer&, const ReadableFile&,
                                       const CancelFlag&) override {
    return Unused();
  }
  absl::Status Download(const Digest&, uint64_t, const std::string&,
                        const CancelFlag&) override {
    return Unused();
  }
  Traffic traffic() const override { return {}; }

 private:
  static absl::Status Unused() { return absl::UnimplementedError("unused"); }
  FiberWorld* const world_;
  bool shut_down_ = false;
};

TEST_CASE("a wait ends when a stop is asked for, whatever came before") {
  FiberWorld world;
  QuietPort port(&world);
  bool stop = false;
  Instant returned;
  Instant returned_again;
  world.Spawn(world.NewGroup(), [&] {
    Link::Options options;
    options.port = &port;
    options.clock = &world;
    options.threads = &world;
    options.beat_every = absl::Seconds(2);
    options.stop_requested = [&] { return stop; };
    Link link(options);
    link.Start();
    // A version after the one that a transfer was for: that one is cancelled.
    const Link::Transfer transfer(&link, Link::Transfer::Kind::kUpload,
                                  /*fragment=*/0, /*base_version=*/3);
    world.Sleep(absl::Seconds(1));
    REQUIRE(transfer.cancel());
    link.WaitForChange(1, absl::Seconds(30));
    returned = world.Now();
    // Also one that begins after it was seen.
    link.WaitForChange(1, absl::Seconds(30));
    returned_again = world.Now();
    port.Shutdown();
    link.Stop();
  });
  world.At(absl::Seconds(4), [&] { stop = true; });
  while (world.Step()) {
  }
  REQUIRE(returned >= absl::Seconds(4));
  REQUIRE(returned < absl::Seconds(4.5));
  REQUIRE(returned_again == returned);
}

TEST_CASE(
    "a wait on a port that was shut down ends once, and then takes time") {
  FiberWorld world;
  QuietPort port(&world);
  std::vector<Instant> returned;
  world.Spawn(world.NewGroup(), [&] {
    Link::Options options;
    options.port = &port;
    options.clock = &world;
    options.threads = &world;
    options.beat_every = absl::Seconds(2);
    options.stop_requested = [] { return false; };
    Link link(options);
    link.Start();
    world.Sleep(absl::Seconds(1));
    for (int i = 0; i < 2; ++i) {
      link.WaitForChange(1, absl::Seconds(30));
      returned.push_back(world.Now());
    }
    REQUIRE(link.away());
    link.Stop();
  });
  world.At(absl::Seconds(4), [&] { port.Shutdown(); });
  while (world.Step()) {
  }
  REQUIRE(returned.size() == 2);
  REQUIRE(returned[0] < absl::Seconds(7));
  REQUIRE(returned[1] > returned[0]);
}

}  // namespace
}  // namespace diloco::sim

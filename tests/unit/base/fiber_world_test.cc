#include "common/base/fiber_world.h"

#include "tests/support/catch.h"

namespace diloco {
namespace {

TEST_CASE("fibers take turns in order, and time jumps to what is next") {
  FiberWorld world;
  std::string log;
  const FiberWorld::Group group = world.NewGroup();
  world.Spawn(group, [&] {
    log += "a";
    world.Sleep(absl::Hours(2));
    log += "c";
  });
  world.Spawn(group, [&] {
    log += "b";
    world.Sleep(absl::Hours(3));
    log += "d";
  });
  while (world.Step()) {
  }
  REQUIRE(log == "abcd");
  REQUIRE(world.Now() == absl::Hours(3));
}

TEST_CASE("a wait point wakes, and tells when nobody did in time") {
  FiberWorld world;
  Mutex mu;
  WaitPoint changed(&world);
  bool expired_early = true;
  bool expired_late = false;
  world.Spawn(world.NewGroup(), [&] {
    MutexLock lock(&mu);
    expired_early = changed.WaitFor(&mu, absl::Seconds(10));
    expired_late = changed.WaitFor(&mu, absl::Seconds(10));
  });
  world.At(absl::Seconds(4), [&] { changed.SignalAll(); });
  while (world.Step()) {
  }
  REQUIRE(!expired_early);
  REQUIRE(expired_late);
  REQUIRE(world.Now() == absl::Seconds(14));
}

TEST_CASE("a thread is joined by the fiber that started it") {
  FiberWorld world;
  int done = 0;
  world.Spawn(world.NewGroup(), [&] {
    const auto thread = world.Start([&] {
      world.Sleep(absl::Seconds(5));
      done = 1;
    });
    thread->Join();
    done = done == 1 ? 2 : -1;
  });
  while (world.Step()) {
  }
  REQUIRE(done == 2);
}

TEST_CASE("the end of a process ends its waits while time stands still") {
  FiberWorld world;
  const FiberWorld::Group group = world.NewGroup();
  bool ended = false;
  bool other = false;
  world.Spawn(group, [&] {
    world.Sleep(absl::Hours(1));
    ended = true;
  });
  world.Spawn(world.NewGroup(), [&] {
    world.Sleep(absl::Hours(1));
    other = true;
  });
  while (world.Now() < absl::Seconds(1)) {
    world.At(absl::Seconds(1), [] {});
    world.Step();
  }
  world.End(group);
  REQUIRE(ended);
  REQUIRE(!other);
  REQUIRE(world.Now() == absl::Seconds(1));
  while (world.Step()) {
  }
  REQUIRE(other);
}

}  // namespace
}  // namespace diloco

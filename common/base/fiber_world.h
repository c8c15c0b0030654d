// Time and threads of a simulation: fibers that take turns on one thread, over
// a clock that jumps to the next thing that happens. What is started in the
// same order runs in the same order, always. Used by worker/simulate and
// tests/sim.
//
//   FiberWorld world;
//   const FiberWorld::Group process = world.NewGroup();
//   world.Spawn(process, [&] { world.Sleep(absl::Seconds(3)); ... });
//   while (!done && world.Step()) {}
//   world.End(process);      // as a kill: what its fibers wait for does not
//   come
//
// A fiber only gives its turn away where it waits: a Mutex that is held there
// must be the one that the wait releases.
#ifndef COMMON_BASE_FIBER_WORLD_H_
#define COMMON_BASE_FIBER_WORLD_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "common/base/clock.h"
#include "common/base/threads.h"

namespace diloco {

class FiberWorld final : public Clock, public Threads {
 public:
  // The fibers of one simulated process; 0 is nobody's.
  using Group = uint64_t;

  // Stacks take memory where they are used only, in whole pages.
  explicit FiberWorld(size_t stack_bytes = 512 << 10);
  ~FiberWorld() override;

  // Clock.
  Instant Now() const override { return now_; }
  absl::Time WallTime() const override { return absl::UnixEpoch() + now_; }

  // Threads: a fiber in the group of the one that calls.
  std::unique_ptr<Thread> Start(std::function<void()> body) override;
  bool Wait(const WaitPoint* at, Mutex* mu, absl::Duration timeout) override;
  void Wake(const WaitPoint* at) override;

  Group NewGroup() { return ++last_group_; }
  void Spawn(Group group, std::function<void()> body);
  // Of the fiber that calls; at once when its group has ended.
  void Sleep(absl::Duration duration);
  // Calls `what` between fibers, not on one.
  void At(Instant when, std::function<void()> what);
  void After(absl::Duration delay, std::function<void()> what) {
    At(now_ + delay, std::move(what));
  }

  // The next fiber or timer; false when nothing will ever happen any more.
  bool Step();
  // From now on no wait of the group's fibers lasts; runs them to their ends,
  // in which time stands still. Not from one of its fibers.
  void End(Group group);
  bool ended(Group group) const { return ended_.count(group) != 0; }
  Group current_group() const;

 private:
  struct Fiber;
  struct Timer {
    Instant when;
    uint64_t order = 0;
    std::function<void()> call;  // Or, when empty:
    uint64_t fiber = 0;          // Its id, and
    uint64_t wait = 0;           // which of its waits ends; stale when past.
  };
  struct Later {
    bool operator()(const Timer& a, const Timer& b) const {
      return a.when != b.when ? a.when > b.when : a.order > b.order;
    }
  };
  class Handle;

  Fiber* Create(Group group, std::function<void()> body);
  static void Entry();
  void Run(Fiber* fiber);
  // Gives the turn away; what is to resume it was arranged before.
  void Suspend();
  void Ready(Fiber* fiber);
  void Free(Fiber* fiber);
  void SwitchInto(Fiber* fiber);

  Instant now_ = absl::ZeroDuration();
  Group last_group_ = 0;
  std::set<Group> ended_;
  Fiber* current_ = nullptr;  // Null between fibers.
  std::deque<Fiber*> ready_;
  std::vector<Timer> timers_;  // A heap.
  uint64_t order_ = 0;
  std::map<const WaitPoint*, std::vector<Fiber*>> waiting_;
  std::map<uint64_t, std::unique_ptr<Fiber>> fibers_;  // By birth.
  uint64_t born_ = 0;
  class Stack;
  const size_t stack_bytes_;
  std::vector<std::unique_ptr<Stack>> stacks_;  // To be used again.
  struct Switcher;
  std::unique_ptr<Switcher> switcher_;
};

}  // namespace diloco

#endif  // COMMON_BASE_FIBER_WORLD_H_

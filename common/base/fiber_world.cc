#include "common/base/fiber_world.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/logging.h"

// Sanitizers must be told when the stack changes.
#if defined(__SANITIZE_ADDRESS__)
extern "C" void __sanitizer_start_switch_fiber(void** fake_stack,
                                               const void* bottom, size_t size);
extern "C" void __sanitizer_finish_switch_fiber(void* fake_stack,
                                                const void** old_bottom,
                                                size_t* old_size);
#endif
#if defined(__SANITIZE_THREAD__)
extern "C" void* __tsan_get_current_fiber();
extern "C" void* __tsan_create_fiber(unsigned flags);
extern "C" void __tsan_destroy_fiber(void* fiber);
extern "C" void __tsan_switch_to_fiber(void* fiber, unsigned flags);
#endif

namespace diloco {
namespace {

constexpr int kMaxTurns = 100'000;

// makecontext passes no pointers: the fiber that is entered first.
thread_local FiberWorld* entering = nullptr;

}  // namespace

// Memory with a page below it that nobody may touch.
class FiberWorld::Stack {
 public:
  explicit Stack(size_t bytes)
      : guard_(static_cast<size_t>(sysconf(_SC_PAGESIZE))), bytes_(bytes) {
    base_ = static_cast<char*>(
        mmap(nullptr, guard_ + bytes_, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    DILOCO_CHECK(base_ != MAP_FAILED) << "no memory for a fiber's stack";
    DILOCO_CHECK(mprotect(base_, guard_, PROT_NONE) == 0);
  }
  ~Stack() { munmap(base_, guard_ + bytes_); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  char* bottom() const { return base_ + guard_; }

 private:
  const size_t guard_;
  const size_t bytes_;
  char* base_;
};

struct FiberWorld::Fiber {
  uint64_t id = 0;
  Group group = 0;
  std::function<void()> body;
  std::unique_ptr<Stack> stack;
  ucontext_t context;
  bool done = false;
  bool ready = false;  // In ready_.
  uint64_t wait = 0;   // Grows with each wait.
  bool expired = false;
  const WaitPoint* at = nullptr;
  Fiber* joiner = nullptr;  // Waits for this one's end.
  bool has_handle = false;
  void* sanitizer = nullptr;
};

struct FiberWorld::Switcher {
  ucontext_t main;
  const void* main_bottom = nullptr;
  size_t main_size = 0;
  void* main_fake = nullptr;
  void* main_tsan = nullptr;
};

class FiberWorld::Handle final : public Threads::Thread {
 public:
  Handle(FiberWorld* world, Fiber* fiber) : world_(world), fiber_(fiber) {}
  void Join() override {
    while (!fiber_->done) {
      DILOCO_CHECK(world_->current_ != nullptr) << "joined by no fiber";
      if (world_->ended(world_->current_->group)) {
        world_->Ready(world_->current_);
      } else {
        fiber_->joiner = world_->current_;
      }
      world_->Suspend();
    }
    world_->Free(fiber_);
  }

 private:
  FiberWorld* const world_;
  Fiber* const fiber_;
};

FiberWorld::FiberWorld(size_t stack_bytes)
    : stack_bytes_(stack_bytes), switcher_(std::make_unique<Switcher>()) {}

FiberWorld::~FiberWorld() {
  for (const auto& [id, fiber] : fibers_) {
    DILOCO_CHECK(fiber->done)
        << "a fiber of group " << fiber->group << " outlives its world";
  }
}

FiberWorld::Group FiberWorld::current_group() const {
  return current_ == nullptr ? 0 : current_->group;
}

FiberWorld::Fiber* FiberWorld::Create(Group group, std::function<void()> body) {
  auto fiber = std::make_unique<Fiber>();
  fiber->id = ++born_;
  fiber->group = group;
  fiber->body = std::move(body);
  if (stacks_.empty()) {
    fiber->stack = std::make_unique<Stack>(stack_bytes_);
  } else {
    fiber->stack = std::move(stacks_.back());
    stacks_.pop_back();
  }
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack->bottom();
  fiber->context.uc_stack.ss_size = stack_bytes_;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, &FiberWorld::Entry, 0);
#if defined(__SANITIZE_THREAD__)
  fiber->sanitizer = __tsan_create_fiber(0);
#endif
  Fiber* const created = fiber.get();
  fibers_[created->id] = std::move(fiber);
  Ready(created);
  return created;
}

void FiberWorld::Free(Fiber* fiber) {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(fiber->sanitizer);
#endif
  stacks_.push_back(std::move(fiber->stack));
  fibers_.erase(fiber->id);
}

std::unique_ptr<Threads::Thread> FiberWorld::Start(std::function<void()> body) {
  Fiber* const fiber = Create(current_group(), std::move(body));
  fiber->has_handle = true;
  return std::make_unique<Handle>(this, fiber);
}

void FiberWorld::Spawn(Group group, std::function<void()> body) {
  Create(group, std::move(body));
}

void FiberWorld::Entry() {
  FiberWorld* const world = entering;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &world->switcher_->main_bottom,
                                  &world->switcher_->main_size);
#endif
  Fiber* const fiber = world->current_;
  fiber->body();
  fiber->body = nullptr;
  fiber->done = true;
  if (fiber->joiner != nullptr) world->Ready(fiber->joiner);
  world->Suspend();
}

// From the scheduler into a fiber, until that one gives its turn away.
void FiberWorld::SwitchInto(Fiber* fiber) {
  entering = this;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&switcher_->main_fake, fiber->stack->bottom(),
                                 stack_bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  switcher_->main_tsan = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(fiber->sanitizer, 0);
#endif
  swapcontext(&switcher_->main, &fiber->context);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(switcher_->main_fake, nullptr, nullptr);
#endif
}

void FiberWorld::Suspend() {
  Fiber* const fiber = current_;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(fiber->done ? nullptr : &fiber->sanitizer,
                                 switcher_->main_bottom, switcher_->main_size);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(switcher_->main_tsan, 0);
#endif
  swapcontext(&fiber->context, &switcher_->main);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fiber->sanitizer, nullptr, nullptr);
#endif
}

void FiberWorld::Run(Fiber* fiber) {
  fiber->ready = false;
  current_ = fiber;
  SwitchInto(fiber);
  current_ = nullptr;
  if (fiber->done && !fiber->has_handle) Free(fiber);
}

void FiberWorld::Ready(Fiber* fiber) {
  if (fiber->ready || fiber->done) return;
  fiber->ready = true;
  ready_.push_back(fiber);
}

bool FiberWorld::Wait(const WaitPoint* at, Mutex* mu, absl::Duration timeout) {
  Fiber* const fiber = current_;
  DILOCO_CHECK(fiber != nullptr) << "only a fiber can wait";
  mu->Unlock();
  ++fiber->wait;
  fiber->expired = false;
  if (ended(fiber->group)) {
    fiber->expired = true;
    Ready(fiber);
  } else {
    fiber->at = at;
    if (at != nullptr) waiting_[at].push_back(fiber);
    if (timeout < absl::InfiniteDuration()) {
      timers_.push_back({now_ + std::max(timeout, absl::ZeroDuration()),
                         ++order_, nullptr, fiber->id, fiber->wait});
      std::push_heap(timers_.begin(), timers_.end(), Later());
    }
  }
  Suspend();
  ++fiber->wait;
  if (fiber->at != nullptr) {
    const auto found = waiting_.find(fiber->at);
    if (found != waiting_.end()) {
      std::erase(found->second, fiber);
      if (found->second.empty()) waiting_.erase(found);
    }
    fiber->at = nullptr;
  }
  mu->Lock();
  return fiber->expired;
}

void FiberWorld::Wake(const WaitPoint* at) {
  const auto found = waiting_.find(at);
  if (found == waiting_.end()) return;
  const std::vector<Fiber*> woken = std::move(found->second);
  waiting_.erase(found);
  for (Fiber* fiber : woken) {
    fiber->at = nullptr;
    Ready(fiber);
  }
}

void FiberWorld::Sleep(absl::Duration duration) {
  Mutex mu;
  MutexLock lock(&mu);
  (void)Wait(nullptr, &mu, duration);
}

void FiberWorld::At(Instant when, std::function<void()> what) {
  timers_.push_back({std::max(when, now_), ++order_, std::move(what), 0, 0});
  std::push_heap(timers_.begin(), timers_.end(), Later());
}

bool FiberWorld::Step() {
  DILOCO_CHECK(current_ == nullptr);
  if (!ready_.empty()) {
    Fiber* const next = ready_.front();
    ready_.pop_front();
    Run(next);
    return true;
  }
  if (timers_.empty()) return false;
  std::pop_heap(timers_.begin(), timers_.end(), Later());
  const Timer timer = std::move(timers_.back());
  timers_.pop_back();
  now_ = std::max(now_, timer.when);
  if (timer.call) {
    timer.call();
    return true;
  }
  const auto fiber = fibers_.find(timer.fiber);
  if (fiber != fibers_.end() && fiber->second->wait == timer.wait &&
      !fiber->second->ready) {
    fiber->second->expired = true;
    Ready(fiber->second.get());
  }
  return true;
}

void FiberWorld::End(Group group) {
  DILOCO_CHECK(current_ == nullptr);
  ended_.insert(group);
  int turns = 0;
  for (const auto& [id, fiber] : fibers_) {
    if (fiber->group == group && !fiber->done) {
      fiber->expired = true;
      Ready(fiber.get());
    }
  }
  while (true) {
    const auto next = std::find_if(
        ready_.begin(), ready_.end(),
        [group](const Fiber* fiber) { return fiber->group == group; });
    if (next == ready_.end()) break;
    // A loop that waits for time to pass, where it should look for the end.
    DILOCO_CHECK(++turns < kMaxTurns) << "a process does not end";
    Fiber* const fiber = *next;
    ready_.erase(next);
    Run(fiber);
  }
}

}  // namespace diloco

#include "common/base/threads.h"

#include <thread>
#include <utility>

#include "common/base/logging.h"

namespace diloco {
namespace {

class RealThread final : public Threads::Thread {
 public:
  explicit RealThread(std::function<void()> body) : thread_(std::move(body)) {}
  void Join() override { thread_.join(); }

 private:
  std::thread thread_;
};

class RealThreads final : public Threads {
 public:
  std::unique_ptr<Thread> Start(std::function<void()> body) override {
    return std::make_unique<RealThread>(std::move(body));
  }
  // A WaitPoint of these threads waits by itself.
  bool Wait(const WaitPoint*, Mutex*, absl::Duration) override {
    DILOCO_CHECK(false);
    return false;
  }
  void Wake(const WaitPoint*) override { DILOCO_CHECK(false); }
};

}  // namespace

Threads* Threads::Real() {
  static Threads* const real = new RealThreads();
  return real;
}

}  // namespace diloco

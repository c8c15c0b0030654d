#include "common/base/shutdown.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "common/base/logging.h"

namespace diloco {
namespace {

struct State {
  std::mutex mu;
  std::condition_variable cv;
  bool requested = false;
};

State& GetState() {
  static State* const state = new State;
  return *state;
}

}  // namespace

void RequestShutdown() {
  State& state = GetState();
  std::lock_guard<std::mutex> lock(state.mu);
  state.requested = true;
  state.cv.notify_all();
}

bool ShutdownRequested() {
  State& state = GetState();
  std::lock_guard<std::mutex> lock(state.mu);
  return state.requested;
}

bool WaitForShutdown(absl::Duration timeout) {
  State& state = GetState();
  std::unique_lock<std::mutex> lock(state.mu);
  return state.cv.wait_for(lock, absl::ToChronoNanoseconds(timeout),
                           [&] { return state.requested; });
}

void InstallShutdownHandler(std::function<void()> on_usr1) {
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  if (on_usr1) sigaddset(&signals, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals, on_usr1 = std::move(on_usr1)] {
    int number = 0;
    while (sigwait(&signals, &number) == 0) {
      if (number == SIGUSR1) {
        on_usr1();
        continue;
      }
      if (ShutdownRequested()) _exit(128 + number);
      DILOCO_LOG(INFO) << "stopping signal=" << number
                       << " hint=\"a second signal ends at once\"";
      RequestShutdown();
    }
  }).detach();
}

}  // namespace diloco

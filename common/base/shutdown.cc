#include "common/base/shutdown.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

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

void InstallShutdownHandler() {
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] {
    int number = 0;
    while (sigwait(&signals, &number) == 0) {
      if (ShutdownRequested()) _exit(128 + number);
      DILOCO_LOG(INFO) << "stopping signal=" << number
                       << " hint=\"a second signal ends at once\"";
      RequestShutdown();
    }
  }).detach();
}

}  // namespace diloco

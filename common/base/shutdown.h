// Turns SIGTERM and SIGINT into a request that main waits for; the second
// signal ends the process at once. Used by the daemons' main functions.
#ifndef COMMON_BASE_SHUTDOWN_H_
#define COMMON_BASE_SHUTDOWN_H_

#include <functional>

#include "absl/time/time.h"

namespace diloco {

// Blocks the stop signals in this and all later threads and handles them on a
// thread of its own. Call once, first thing in main. SIGPIPE is ignored. With
// `on_usr1`, SIGUSR1 calls it on that thread instead of ending the process.
void InstallShutdownHandler(std::function<void()> on_usr1 = nullptr);

// True once a stop signal came or RequestShutdown was called. Thread-safe.
bool ShutdownRequested();
void RequestShutdown();

// Returns when a stop was requested or `timeout` passed; true if requested.
bool WaitForShutdown(absl::Duration timeout);

}  // namespace diloco

#endif  // COMMON_BASE_SHUTDOWN_H_

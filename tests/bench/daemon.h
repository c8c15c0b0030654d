// A diloco-coordinator of this build as a child process.
#ifndef TESTS_BENCH_DAEMON_H_
#define TESTS_BENCH_DAEMON_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace diloco {

// How long a bench waits for anything before it gives up.
inline constexpr absl::Duration kBenchPatience = absl::Minutes(10);

// Killed with this object, and with the process that started it.
class Daemon {
 public:
  // Starts the program beside the running one, with the run file `config` and
  // its log in `log`.
  Daemon(const std::string& config, std::string log);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // The port that it logs once it listens; 0 before that.
  absl::StatusOr<int> Port();
  // Waits for it.
  absl::StatusOr<int> WaitForPort();
  // RssAnon + RssShmem, in bytes; 0 when it is gone.
  int64_t AnonymousBytes() const;

 private:
  const std::string log_;
  pid_t pid_ = -1;
};

}  // namespace diloco

#endif  // TESTS_BENCH_DAEMON_H_

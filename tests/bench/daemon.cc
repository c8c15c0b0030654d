#include "tests/bench/daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/io/file_system.h"

namespace diloco {

Daemon::Daemon(const std::string& config, std::string log)
    : log_(std::move(log)) {
  const std::string program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() /
      "diloco-coordinator";
  // Not that of a process before, with its port.
  unlink(log_.c_str());
  pid_ = fork();
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int fd = open(log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  dup2(fd, STDOUT_FILENO);
  dup2(fd, STDERR_FILENO);
  execl(program.c_str(), program.c_str(), "--config", config.c_str(),
        static_cast<char*>(nullptr));
  _exit(127);
}

Daemon::~Daemon() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

absl::StatusOr<int> Daemon::Port() {
  const absl::StatusOr<std::string> log = ReadFile(FileSystem::Posix(), log_);
  const std::string text = log.ok() ? *log : "";
  if (const size_t at = text.find(" port="); at != std::string::npos) {
    return std::atoi(text.c_str() + at + 6);
  }
  if (pid_ <= 0 || waitpid(pid_, nullptr, WNOHANG) == pid_) {
    pid_ = -1;
    return absl::InternalError(
        absl::StrCat("diloco-coordinator ended: ", text));
  }
  return 0;
}

absl::StatusOr<int> Daemon::WaitForPort() {
  const absl::Notification never;
  const Instant give_up = Clock::Real()->Now() + kBenchPatience;
  while (Clock::Real()->Now() < give_up) {
    ASSIGN_OR_RETURN(const int port, Port());
    if (port != 0) return port;
    never.WaitForNotificationWithTimeout(absl::Milliseconds(20));
  }
  return absl::DeadlineExceededError("diloco-coordinator does not listen");
}

int64_t Daemon::AnonymousBytes() const {
  std::FILE* const file =
      std::fopen(absl::StrCat("/proc/", pid_, "/status").c_str(), "r");
  if (file == nullptr) return 0;
  int64_t sum = 0;
  char line[256];
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    long long kib = 0;
    if (std::sscanf(line, "RssAnon: %lld", &kib) == 1 ||
        std::sscanf(line, "RssShmem: %lld", &kib) == 1) {
      sum += kib * 1024;
    }
  }
  std::fclose(file);
  return sum;
}

}  // namespace diloco

#include "common/base/logging.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace diloco {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};
char g_component[32] = "diloco";

const char* Name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "?";
}

}  // namespace

void SetLogLevel(LogLevel level) { g_level = level; }

bool LogEnabled(LogLevel level) { return level >= g_level.load(); }

bool ParseLogLevel(absl::string_view text, LogLevel* level) {
  for (LogLevel candidate : {LogLevel::kDebug, LogLevel::kInfo,
                             LogLevel::kWarning, LogLevel::kError}) {
    if (text == Name(candidate)) {
      *level = candidate;
      return true;
    }
  }
  return false;
}

void SetLogComponent(absl::string_view component) {
  const size_t n = std::min(component.size(), sizeof(g_component) - 1);
  std::memcpy(g_component, component.data(), n);
  g_component[n] = '\0';
}

namespace log_internal {

Message::Message(LogLevel level, const char* file, int line, bool fatal)
    : level_(level), file_(file), line_(line), fatal_(fatal) {}

Message::~Message() {
  std::string text =
      absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(),
                                    absl::UTCTimeZone()),
                   " ", Name(level_), " ", g_component, " ", stream_.str());
  if (fatal_) absl::StrAppend(&text, " at ", file_, ":", line_);
  // One line per event, whatever a message carried in from outside.
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  text.push_back('\n');
  // One write call, so that lines of several threads do not mix.
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n =
        ::write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  if (fatal_) std::abort();
}

}  // namespace log_internal
}  // namespace diloco

// Log lines on stderr and checks for impossible states. A line is one event
// with key=value fields, ids first; ERROR means that somebody must act.
//
//   DILOCO_LOG(INFO) << "round closed run=" << run << " round=" << round;
//   DILOCO_CHECK(offset <= size) << "offset " << offset;
#ifndef COMMON_BASE_LOGGING_H_
#define COMMON_BASE_LOGGING_H_

#include <sstream>
#include <string>

#include "absl/strings/string_view.h"

namespace diloco {

enum class LogLevel { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

// Lines below `level` are dropped. Default: info. Thread-safe.
void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);
// Parses debug, info, warning or error; false when it is none of them.
bool ParseLogLevel(absl::string_view text, LogLevel* level);
// Names the program in each line, e.g. "coordinator". Call once in main.
void SetLogComponent(absl::string_view component);

namespace log_internal {

class Message {
 public:
  Message(LogLevel level, const char* file, int line, bool fatal);
  ~Message();  // Writes the line; ends the process when fatal.
  std::ostream& stream() { return stream_; }

 private:
  const LogLevel level_;
  const char* const file_;
  const int line_;
  const bool fatal_;
  std::ostringstream stream_;
};

// Makes the two arms of the conditional below the same type.
struct Voidify {
  void operator&(std::ostream&) const {}
};

inline constexpr LogLevel kDEBUG = LogLevel::kDebug;
inline constexpr LogLevel kINFO = LogLevel::kInfo;
inline constexpr LogLevel kWARNING = LogLevel::kWarning;
inline constexpr LogLevel kERROR = LogLevel::kError;

}  // namespace log_internal
}  // namespace diloco

#define DILOCO_LOG(severity)                                             \
  !::diloco::LogEnabled(::diloco::log_internal::k##severity)             \
      ? (void)0                                                          \
      : ::diloco::log_internal::Voidify() &                              \
            ::diloco::log_internal::Message(                             \
                ::diloco::log_internal::k##severity, __FILE__, __LINE__, \
                false)                                                   \
                .stream()

#define DILOCO_CHECK(condition)                                               \
  (condition) ? (void)0                                                       \
              : ::diloco::log_internal::Voidify() &                           \
                    ::diloco::log_internal::Message(                          \
                        ::diloco::LogLevel::kError, __FILE__, __LINE__, true) \
                            .stream()                                         \
                        << "check failed: " #condition " "

#endif  // COMMON_BASE_LOGGING_H_

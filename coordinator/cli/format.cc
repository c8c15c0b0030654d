#include "coordinator/cli/format.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace diloco {
namespace {

std::string Scaled(double value, double unit, const char* suffix) {
  const double scaled = value / unit;
  if (scaled >= 99.95) return absl::StrFormat("%.0f%s", scaled, suffix);
  if (scaled >= 9.995) return absl::StrFormat("%.1f%s", scaled, suffix);
  return absl::StrFormat("%.2f%s", scaled, suffix);
}

}  // namespace

std::string FormatCount(uint64_t count) {
  const double value = static_cast<double>(count);
  if (count < 1000) return absl::StrFormat("%d", count);
  if (value < 999.5e3) return Scaled(value, 1e3, "k");
  if (value < 999.5e6) return Scaled(value, 1e6, "M");
  return Scaled(value, 1e9, "G");
}

std::string FormatBytes(double bytes) {
  if (bytes < 1000) return absl::StrFormat("%.0f B", bytes);
  if (bytes < 999.5e3) return Scaled(bytes, 1e3, " kB");
  if (bytes < 999.5e6) return Scaled(bytes, 1e6, " MB");
  return Scaled(bytes, 1e9, " GB");
}

std::string FormatSeconds(double seconds) {
  if (seconds < 9.95) return absl::StrFormat("%.1f s", seconds);
  const int64_t whole = std::llround(seconds);
  if (whole < 100) return absl::StrFormat("%d s", whole);
  if (whole < 3600) return absl::StrFormat("%dm%02ds", whole / 60, whole % 60);
  return absl::StrFormat("%dh%02dm", whole / 3600, whole / 60 % 60);
}

std::string FormatWallTime(int64_t unix_ms) {
  if (unix_ms == 0) return "-";
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ",
                          absl::FromUnixMillis(unix_ms), absl::UTCTimeZone());
}

std::string FormatPhase(v1::Phase phase) {
  switch (phase) {
    case v1::PHASE_WAITING:
      return "waiting";
    case v1::PHASE_RUNNING:
      return "running";
    case v1::PHASE_PAUSED:
      return "paused";
    case v1::PHASE_FINISHED:
      return "finished";
    default:
      return "unknown";
  }
}

}  // namespace diloco

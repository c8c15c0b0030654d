// Numbers and times as dilococtl prints them.
#ifndef COORDINATOR_CLI_FORMAT_H_
#define COORDINATOR_CLI_FORMAT_H_

#include <cstdint>
#include <string>

#include "diloco/v1/control.pb.h"

namespace diloco {

std::string FormatCount(uint64_t count);    // 812, 12.3k, 1.80M, 2.10G
std::string FormatBytes(double bytes);      // 812 B, 1.20 MB (powers of ten)
std::string FormatSeconds(double seconds);  // 0.4 s, 12 s, 3m12s, 2h05m
// 2026-01-31T09:30:00.125Z; "-" for 0, which is unknown.
std::string FormatWallTime(int64_t unix_ms);
std::string FormatPhase(v1::Phase phase);  // waiting, running, ...

}  // namespace diloco

#endif  // COORDINATOR_CLI_FORMAT_H_

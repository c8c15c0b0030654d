// Numbers as people write them in a config file, exactly and independent of
// the locale: no hexadecimal, no separators, no leading zeros, no infinities.
// Each Parse function returns "" or what is wrong in words.
#ifndef COMMON_CONFIG_NUMBERS_H_
#define COMMON_CONFIG_NUMBERS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace diloco {

// 3.0e-4, 1e-4, 1.e-4, .5, -2. Values that do not fit a double, or vanish in
// it, are refused.
std::string ParseReal(absl::string_view text, double* value);
// 1024, 50k, 1.8M, 2G, 2B, 1T (powers of 1000); the result is exact.
std::string ParseCount(absl::string_view text, uint64_t* value);
// 64MiB, 10MB, 512B; a unit is required.
std::string ParseBytes(absl::string_view text, uint64_t* value);
// 250ms, 30s, 5m, 1.5h, 2d; a unit is required; whole milliseconds.
std::string ParseDurationWithUnit(absl::string_view text,
                                  absl::Duration* value);

// Shortest text that reads back to the same value, also with PyYAML (1.0e-04).
std::string PrintReal(double value);
std::string PrintBytes(uint64_t value);
std::string PrintDuration(absl::Duration value);

}  // namespace diloco

#endif  // COMMON_CONFIG_NUMBERS_H_

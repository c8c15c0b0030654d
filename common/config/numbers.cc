#include "common/config/numbers.h"

#include <charconv>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace diloco {
namespace {

struct Unit {
  absl::string_view suffix;
  uint64_t factor;
};

constexpr Unit kCountUnits[] = {{"", 1},
                                {"k", 1000},
                                {"M", 1000'000},
                                {"G", 1000'000'000},
                                {"B", 1000'000'000},
                                {"T", 1000'000'000'000}};

// Largest first within a family, as PrintBytes tries them in order.
constexpr Unit kByteUnits[] = {{"TiB", 1ull << 40},
                               {"GiB", 1ull << 30},
                               {"MiB", 1ull << 20},
                               {"KiB", 1ull << 10},
                               {"TB", 1000'000'000'000},
                               {"GB", 1000'000'000},
                               {"MB", 1000'000},
                               {"kB", 1000},
                               {"B", 1}};

// In milliseconds, largest first.
constexpr Unit kDurationUnits[] = {
    {"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1000}, {"ms", 1}};

// What is special about a text that is no number of ours; "" when nothing.
std::string Peculiarity(absl::string_view text) {
  absl::string_view body = text;
  if (!body.empty() && (body[0] == '-' || body[0] == '+'))
    body.remove_prefix(1);
  if (absl::StartsWithIgnoreCase(body, "0x") ||
      absl::StartsWithIgnoreCase(body, "0o") ||
      absl::StartsWithIgnoreCase(body, "0b")) {
    return "numbers are decimal";
  }
  if (text.find_first_of("_,'") != absl::string_view::npos) {
    return "numbers have no separators";
  }
  if (absl::EqualsIgnoreCase(body, ".inf") ||
      absl::EqualsIgnoreCase(body, ".nan") ||
      absl::EqualsIgnoreCase(body, "inf") ||
      absl::EqualsIgnoreCase(body, "nan")) {
    return "it must be finite";
  }
  if (body.size() > 1 && body[0] == '0' && absl::ascii_isdigit(body[1])) {
    return "leading zeros are not allowed";
  }
  if (!text.empty() && text[0] == '+') return "leave out the '+'";
  return "";
}

size_t Digits(absl::string_view text) {
  size_t n = 0;
  while (n < text.size() && absl::ascii_isdigit(text[n])) ++n;
  return n;
}

// DIGITS[.DIGITS]UNIT as a whole number of the smallest unit.
std::string ParseScaled(absl::string_view text, absl::Span<const Unit> units,
                        absl::string_view what, uint64_t* value) {
  if (std::string peculiar = Peculiarity(text); !peculiar.empty()) {
    return peculiar;
  }
  if (absl::StartsWith(text, "-")) return "it must not be negative";
  const size_t whole = Digits(text);
  if (whole == 0) return "it is not a number";
  absl::string_view rest = text.substr(whole);
  absl::string_view fraction;
  if (absl::StartsWith(rest, ".")) {
    fraction = rest.substr(1, Digits(rest.substr(1)));
    if (fraction.empty()) return "digits are missing after '.'";
    rest.remove_prefix(1 + fraction.size());
  }
  const Unit* unit = nullptr;
  for (const Unit& candidate : units) {
    if (candidate.suffix == rest) unit = &candidate;
  }
  if (unit == nullptr) {
    return rest.empty()
               ? absl::StrCat("it needs a unit (", what, ")")
               : absl::StrCat("\"", rest, "\" is no unit (", what, ")");
  }
  while (absl::EndsWith(fraction, "0")) fraction.remove_suffix(1);
  // 20 digits times 2^40 stay far below 2^128.
  constexpr size_t kMaxDigits = 20;
  if (whole + fraction.size() > kMaxDigits) return "it has too many digits";
  unsigned __int128 scaled = 0;
  for (char c : absl::StrCat(text.substr(0, whole), fraction)) {
    scaled = scaled * 10 + (c - '0');
  }
  scaled *= unit->factor;
  for (size_t i = 0; i < fraction.size(); ++i) {
    if (scaled % 10 != 0) {
      // Counts have no smallest unit to name.
      const bool count = units.front().suffix.empty();
      return absl::StrCat("it is not a whole number", count ? "" : " of ",
                          count ? "" : units.back().suffix);
    }
    scaled /= 10;
  }
  if (scaled > std::numeric_limits<uint64_t>::max()) return "it is too large";
  *value = static_cast<uint64_t>(scaled);
  return "";
}

}  // namespace

std::string ParseReal(absl::string_view text, double* value) {
  if (std::string peculiar = Peculiarity(text); !peculiar.empty()) {
    return peculiar;
  }
  absl::string_view body = text;
  if (absl::StartsWith(body, "-")) body.remove_prefix(1);
  const size_t whole = Digits(body);
  absl::string_view rest = body.substr(whole);
  size_t fraction = 0;
  if (absl::StartsWith(rest, ".")) {
    fraction = Digits(rest.substr(1));
    rest.remove_prefix(1 + fraction);
  }
  if (whole + fraction == 0) return "it is not a number";
  const absl::string_view mantissa = body.substr(0, body.size() - rest.size());
  if (!rest.empty()) {
    if (rest[0] != 'e' && rest[0] != 'E') return "it is not a number";
    absl::string_view exponent = rest.substr(1);
    if (!exponent.empty() && (exponent[0] == '+' || exponent[0] == '-')) {
      exponent.remove_prefix(1);
    }
    if (exponent.empty()) return "digits are missing after 'e'";
    if (Digits(exponent) != exponent.size()) return "it is not a number";
  }
  double parsed = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), parsed);
  const bool zero =
      mantissa.find_first_of("123456789") == absl::string_view::npos;
  if (error == std::errc::result_out_of_range || (parsed == 0 && !zero)) {
    return "it is too large or too small for a 64-bit number";
  }
  if (error != std::errc() || end != text.data() + text.size()) {
    return "it is not a number";
  }
  *value = parsed;
  return "";
}

std::string ParseCount(absl::string_view text, uint64_t* value) {
  return ParseScaled(text, kCountUnits, "k, M, G or B, T", value);
}

std::string ParseBytes(absl::string_view text, uint64_t* value) {
  return ParseScaled(text, kByteUnits, "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB",
                     value);
}

std::string ParseDurationWithUnit(absl::string_view text,
                                  absl::Duration* value) {
  uint64_t milliseconds = 0;
  std::string problem =
      ParseScaled(text, kDurationUnits, "ms, s, m, h, d", &milliseconds);
  if (!problem.empty()) return problem;
  constexpr uint64_t kLongest = 1000ull * 365 * 86'400'000;
  if (milliseconds > kLongest) return "it is too large";
  *value = absl::Milliseconds(static_cast<int64_t>(milliseconds));
  return "";
}

std::string PrintReal(double value) {
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  std::string text(buffer, result.ptr);
  const size_t exponent = text.find('e');
  const size_t mantissa_end =
      exponent == std::string::npos ? text.size() : exponent;
  // Without a point PyYAML reads 1e-04 as text and 2 as an integer.
  if (text.find('.') == std::string::npos) text.insert(mantissa_end, ".0");
  return text;
}

std::string PrintBytes(uint64_t value) {
  for (const Unit& unit : kByteUnits) {
    if (value != 0 && value % unit.factor == 0) {
      return absl::StrCat(value / unit.factor, unit.suffix);
    }
  }
  return absl::StrCat(value, "B");
}

std::string PrintDuration(absl::Duration value) {
  const uint64_t milliseconds =
      static_cast<uint64_t>(absl::ToInt64Milliseconds(value));
  for (const Unit& unit : kDurationUnits) {
    if (milliseconds != 0 && milliseconds % unit.factor == 0) {
      return absl::StrCat(milliseconds / unit.factor, unit.suffix);
    }
  }
  return absl::StrCat(milliseconds, "ms");
}

}  // namespace diloco

#include "common/base/utf8.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace diloco {

size_t Utf8Length(absl::string_view bytes) {
  const auto at = [&](size_t i) {
    return i < bytes.size() ? static_cast<uint8_t>(bytes[i]) : uint8_t{0};
  };
  const auto tail = [&](size_t i) { return (at(i) & 0xC0) == 0x80; };
  const uint8_t a = at(0);
  if (a < 0x80) return 1;
  if (a >= 0xC2 && a <= 0xDF) return tail(1) ? 2 : 0;
  if (a >= 0xE0 && a <= 0xEF) {
    if (!tail(1) || !tail(2)) return 0;
    if (a == 0xE0 && at(1) < 0xA0) return 0;
    if (a == 0xED && at(1) >= 0xA0) return 0;
    return 3;
  }
  if (a >= 0xF0 && a <= 0xF4) {
    if (!tail(1) || !tail(2) || !tail(3)) return 0;
    if (a == 0xF0 && at(1) < 0x90) return 0;
    if (a == 0xF4 && at(1) >= 0x90) return 0;
    return 4;
  }
  return 0;
}

std::optional<size_t> FindInvalidUtf8(absl::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = Utf8Length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

std::string Printable(absl::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
    const bool control =
        byte(0) < 0x20 || byte(0) == 0x7f ||
        (length == 2 && byte(0) == 0xc2 && byte(1) < 0xa0) ||
        // U+202A to U+202E and U+2066 to U+2069.
        (length == 3 && byte(0) == 0xe2 &&
         ((byte(1) == 0x80 && byte(2) >= 0xaa && byte(2) <= 0xae) ||
          (byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9)));
    const size_t taken = length == 0 ? 1 : length;
    for (size_t i = 0; i < taken; ++i) {
      if (length == 0 || control) {
        absl::StrAppend(&out, "\\x", absl::Hex(byte(i), absl::kZeroPad2));
      } else {
        out += text[i];
      }
    }
    text.remove_prefix(taken);
  }
  return out;
}

}  // namespace diloco

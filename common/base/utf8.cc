#include "common/base/utf8.h"

#include <cstdint>

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

}  // namespace diloco

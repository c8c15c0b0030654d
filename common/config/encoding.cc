#include "common/config/encoding.h"

#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"

namespace diloco {
namespace {

// Length of the well-formed UTF-8 sequence at the start of `bytes`, 0 if none
// (no overlong forms, surrogates or values above U+10FFFF).
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

}  // namespace

bool NormaliseEncoding(absl::string_view bytes, ConfigErrors* errors,
                       std::string* text) {
  text->clear();
  if (absl::StartsWith(bytes, "\xff\xfe") ||
      absl::StartsWith(bytes, "\xfe\xff") ||
      bytes.substr(0, 4).find('\0') != absl::string_view::npos) {
    errors->Add({1, 1}, "",
                "the file is not UTF-8 (UTF-16 or UTF-32); save it as UTF-8");
    return false;
  }
  if (absl::StartsWith(bytes, "\xef\xbb\xbf")) bytes.remove_prefix(3);
  text->reserve(bytes.size());
  Position position{1, 1};
  bool ok = true;
  bool indentation = true;
  while (!bytes.empty()) {
    const size_t length = Utf8Length(bytes);
    const uint8_t byte = static_cast<uint8_t>(bytes[0]);
    if (length == 0) {
      errors->Add(position, "",
                  absl::StrFormat("byte 0x%02x is not UTF-8; save the file as "
                                  "UTF-8",
                                  byte));
      return false;
    }
    if (byte == '\r' && bytes.size() > 1 && bytes[1] == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    if (byte == '\t' && indentation) {
      errors->Add(position, "", "tab used as indentation; use spaces");
      ok = false;
      indentation = false;  // Once a line.
    }
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) {
      errors->Add(position, "",
                  absl::StrFormat("control character 0x%02x; remove it", byte));
      ok = false;
    }
    if (byte == '\n') {
      ++position.line;
      position.column = 1;
      indentation = true;
    } else {
      position.column += static_cast<int>(length);
      if (byte != ' ') indentation = false;
    }
    text->append(bytes.data(), length);
    bytes.remove_prefix(length);
  }
  return ok;
}

}  // namespace diloco

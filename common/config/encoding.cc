#include "common/config/encoding.h"

#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "common/base/utf8.h"

namespace diloco {
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

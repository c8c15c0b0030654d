#include "common/base/ids.h"

#include <sys/random.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/logging.h"

namespace diloco {

std::string RandomBytes(size_t bytes) {
  std::string out(bytes, '\0');
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::getrandom(out.data() + done, bytes - done, 0);
    DILOCO_CHECK(n > 0);
    done += static_cast<size_t>(n);
  }
  return out;
}

std::string ToHex(absl::string_view bytes) {
  return absl::BytesToHexString(bytes);
}

absl::StatusOr<std::string> FromHex(absl::string_view text) {
  if (text.size() % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("hexadecimal text has an odd length of ", text.size()));
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool ok = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') ||
                    (c >= 'A' && c <= 'F');
    if (!ok) {
      return absl::InvalidArgumentError(
          absl::StrCat("no hexadecimal digit at position ", i));
    }
  }
  return absl::HexStringToBytes(text);
}

absl::Status ValidateName(absl::string_view what, absl::string_view name) {
  bool ok = !name.empty() && name.size() <= 63;
  for (size_t i = 0; ok && i < name.size(); ++i) {
    const char c = name[i];
    const bool alnum = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    ok = alnum || (i > 0 && (c == '-' || c == '_' || c == '.'));
  }
  if (ok) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, " \"", absl::CHexEscape(name),
      "\" must be 1 to 63 of a-z, 0-9, '-', '_', '.', beginning with a letter "
      "or digit"));
}

}  // namespace diloco

// The first look at a config file's bytes: is it UTF-8 text that YAML may
// contain, and where not. Used by ParseDocument only.
#ifndef COMMON_CONFIG_ENCODING_H_
#define COMMON_CONFIG_ENCODING_H_

#include <string>

#include "absl/strings/string_view.h"
#include "common/config/document.h"

namespace diloco {

// The text without a byte order mark and with CRLF as LF. Reports other
// encodings, invalid UTF-8, control characters and tabs used as indentation;
// false when the text cannot be parsed.
bool NormaliseEncoding(absl::string_view bytes, ConfigErrors* errors,
                       std::string* text);

}  // namespace diloco

#endif  // COMMON_CONFIG_ENCODING_H_

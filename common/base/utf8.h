// Well-formed UTF-8: no overlong forms, surrogates or values above U+10FFFF.
// Used wherever text of others is read.
#ifndef COMMON_BASE_UTF8_H_
#define COMMON_BASE_UTF8_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace diloco {

// Length of the sequence at the start of `bytes`, 0 if there is none.
size_t Utf8Length(absl::string_view bytes);

// The text with control characters as \xNN, C1 ones and those that turn the
// direction of writing included, and bytes that are not UTF-8 likewise: what
// others wrote cannot move a terminal's cursor or forge a line.
std::string Printable(absl::string_view text);

// Where the first byte lies that is not part of a sequence.
std::optional<size_t> FindInvalidUtf8(absl::string_view text);

}  // namespace diloco

#endif  // COMMON_BASE_UTF8_H_

// Random identifiers (lineage, boot nonce, session token) and their text form.
#ifndef COMMON_BASE_IDS_H_
#define COMMON_BASE_IDS_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace diloco {

// `bytes` random bytes from the operating system.
std::string RandomBytes(size_t bytes);

// Lower-case hexadecimal and back. FromHex refuses an odd length or a
// character that is no hexadecimal digit.
std::string ToHex(absl::string_view bytes);
absl::StatusOr<std::string> FromHex(absl::string_view text);

// Names of runs and workers: 1 to 63 of a-z, 0-9, '-', '_' and '.', beginning
// with a letter or digit, so that they are safe as file names and labels.
absl::Status ValidateName(absl::string_view what, absl::string_view name);

}  // namespace diloco

#endif  // COMMON_BASE_IDS_H_

// Early return on absl::Status errors. Used everywhere; add context once per
// layer.
//
//   RETURN_IF_ERROR(file->Sync());
//   ASSIGN_OR_RETURN(std::string text, ReadAll(path));
#ifndef COMMON_BASE_STATUS_MACROS_H_
#define COMMON_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#define DILOCO_CONCAT_INNER(a, b) a##b
#define DILOCO_CONCAT(a, b) DILOCO_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expr)                       \
  do {                                              \
    if (::absl::Status status_macro_value = (expr); \
        !status_macro_value.ok()) {                 \
      return status_macro_value;                    \
    }                                               \
  } while (false)

#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_IMPL(DILOCO_CONCAT(status_or_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                          \
  if (!tmp.ok()) {                            \
    return std::move(tmp).status();           \
  }                                           \
  lhs = *std::move(tmp)

namespace diloco {

// The same code with `context: ` before the message; OK stays OK.
inline absl::Status WithContext(const absl::Status& status,
                                absl::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(context, ": ", status.message()));
}

}  // namespace diloco

#endif  // COMMON_BASE_STATUS_MACROS_H_

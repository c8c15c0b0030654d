// The one place where LibTorch's exceptions become Status: every entry from
// torch-free code runs inside Guarded.
#ifndef WORKER_TRAIN_TORCH_GUARD_H_
#define WORKER_TRAIN_TORCH_GUARD_H_

#include <exception>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "worker/train/torch_headers.h"

namespace diloco {

// Calls `body`, which returns a Status or StatusOr. Out of memory is
// RESOURCE_EXHAUSTED, anything else that torch throws INTERNAL; `what` names
// the operation.
template <typename Body>
auto Guarded(absl::string_view what, Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const c10::OutOfMemoryError& e) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what,
                     ": out of device memory (a smaller micro_batch "
                     "needs less): ",
                     e.what_without_backtrace()));
  } catch (const c10::Error& e) {
    return absl::InternalError(
        absl::StrCat(what, ": LibTorch: ", e.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(
        what, ": out of memory (a smaller micro_batch needs less)"));
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat(what, ": ", e.what()));
  }
}

}  // namespace diloco

#endif  // WORKER_TRAIN_TORCH_GUARD_H_

// Finds out whether a server could listen on HOST:PORT, before anything is done
// that would have to be undone, and where the library behind the server would
// say less.
//
//   ASSIGN_OR_RETURN(std::string numbers, UsableListenAddress("localhost:0"));
#ifndef COMMON_BASE_LISTEN_ADDRESS_H_
#define COMMON_BASE_LISTEN_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"

namespace diloco {

// `address` in numbers, e.g. 127.0.0.1:0, once this process has listened there
// for a moment. INVALID_ARGUMENT: malformed, or a host or port that it cannot
// listen on; UNAVAILABLE: another process has the port. The text names the
// address, not the setting it is from.
absl::StatusOr<std::string> UsableListenAddress(const std::string& address);

}  // namespace diloco

#endif  // COMMON_BASE_LISTEN_ADDRESS_H_

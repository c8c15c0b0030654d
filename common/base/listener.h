// A TCP socket that listens on HOST:PORT. The HTTP server accepts from one; who
// hands an address to a library that reports less learns from one whether the
// address can be had.
//
//   ASSIGN_OR_RETURN(Listener listener, Listener::Open("127.0.0.1:0"));
//   ... accept(listener.fd(), ...) ... listener.port() ...
#ifndef COMMON_BASE_LISTENER_H_
#define COMMON_BASE_LISTENER_H_

#include <string>

#include "absl/status/statusor.h"

namespace diloco {

class Listener {
 public:
  // Port 0 picks one. INVALID_ARGUMENT: malformed, or a host or port that this
  // process cannot listen on; UNAVAILABLE: another process has the port.
  // The text names the address, not the setting it is from.
  static absl::StatusOr<Listener> Open(const std::string& address);

  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&& other) noexcept;
  ~Listener();

  // Non-blocking, owned by this object.
  int fd() const { return fd_; }
  int port() const { return port_; }

 private:
  Listener(int fd, int port) : fd_(fd), port_(port) {}

  int fd_;
  int port_;
};

}  // namespace diloco

#endif  // COMMON_BASE_LISTENER_H_

#include "common/base/listen_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/logging.h"

namespace diloco {
namespace {

absl::Status Failure(const std::string& address, int error) {
  const std::string text = absl::StrCat("cannot listen on ", address, ": ");
  switch (error) {
    case EADDRINUSE:
      return absl::UnavailableError(
          absl::StrCat(text, "the port is in use by another process"));
    case EADDRNOTAVAIL:
      return absl::InvalidArgumentError(
          absl::StrCat(text, "the host is not an address of this machine"));
    case EACCES:
      return absl::InvalidArgumentError(
          absl::StrCat(text, "this user may not have that port"));
    default:
      return absl::UnavailableError(absl::StrCat(text, std::strerror(error)));
  }
}

// What this process cannot do with a socket address: an errno, or 0.
int ListenOnce(const addrinfo& at) {
  const int fd = socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  // Connections of an earlier process may still be ending.
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const int error =
      bind(fd, at.ai_addr, at.ai_addrlen) == 0 && listen(fd, /*backlog=*/1) == 0
          ? 0
          : errno;
  close(fd);
  return error;
}

std::string InNumbers(const addrinfo& at) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  DILOCO_CHECK(getnameinfo(at.ai_addr, at.ai_addrlen, host, sizeof(host), port,
                           sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) == 0);
  return at.ai_family == AF_INET6 ? absl::StrCat("[", host, "]:", port)
                                  : absl::StrCat(host, ":", port);
}

}  // namespace

absl::StatusOr<std::string> UsableListenAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 ||
      port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot listen on \"", address,
        "\": it must be HOST:PORT with a port from 0 to 65535, e.g. "
        "127.0.0.1:7601"));
  }
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  // Not ::1, which the name may stand for as well: clients try the other first.
  if (host == "localhost") host = "127.0.0.1";
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int looked_up =
      getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (looked_up != 0) {
    // Also when no name server answers: the address is one of this machine,
    // which needs none.
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot listen on ", address, ": \"", host,
        "\" is no address of this machine (", gai_strerror(looked_up),
        "); write it in numbers, e.g. 127.0.0.1"));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found,
                                                             &freeaddrinfo);
  // The first of a name's addresses that this machine has.
  int error = EADDRNOTAVAIL;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    error = ListenOnce(*at);
    if (error == 0) return InNumbers(*at);
    if (error == EADDRINUSE) break;
  }
  return Failure(address, error);
}

}  // namespace diloco

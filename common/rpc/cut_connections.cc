#include "common/rpc/cut_connections.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace diloco {
namespace {

// -1: not a TCP socket.
int OwnPort(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return -1;
  }
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
  }
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  }
  return -1;
}

bool IsConnected(int fd) {
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  return getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
}

}  // namespace

void CutConnections(int port) {
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  for (; !error && entry != std::filesystem::directory_iterator();
       entry.increment(error)) {
    const int fd = std::atoi(entry->path().filename().c_str());
    if (OwnPort(fd) == port && IsConnected(fd)) shutdown(fd, SHUT_RDWR);
  }
}

}  // namespace diloco

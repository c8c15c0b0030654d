// The HTTP half of metrics.h: one thread that polls. No connection can hold
// another one up, nor the stop, however slow or silent it is; a library with a
// thread for each connection would need as many threads as there are silent
// ones.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/base/listener.h"
#include "common/base/status_macros.h"
#include "common/metrics/metrics.h"

namespace diloco {
namespace {

// When there are more, the oldest is closed for the newcomer.
constexpr size_t kMaxConnections = 256;
// How long one may take for its whole request and answer.
constexpr absl::Duration kPatience = absl::Seconds(5);
constexpr size_t kMaxRequest = 16 << 10;

struct Connection {
  int fd = -1;
  Instant deadline;
  std::string request;
  std::string response;  // Empty while the request is incomplete.
  size_t sent = 0;
};

class PollServer final : public MetricsServer {
 public:
  PollServer(Listener listener, const MetricsRegistry* registry,
             std::function<std::string()> not_ready)
      : listener_(std::move(listener)),
        registry_(registry),
        not_ready_(std::move(not_ready)) {}

  ~PollServer() override {
    if (thread_.joinable()) {
      close(std::exchange(wake_[1], -1));  // Readable at the other end.
      thread_.join();
    }
    for (const Connection& connection : connections_) close(connection.fd);
    for (const int fd : wake_) {
      if (fd >= 0) close(fd);
    }
  }

  absl::Status Start() {
    if (pipe2(wake_, O_CLOEXEC) != 0) {
      return absl::ResourceExhaustedError(
          "cannot serve metrics: no file descriptor is left for a pipe; raise "
          "the limit (ulimit -n)");
    }
    thread_ = std::thread([this] { Loop(); });
    return absl::OkStatus();
  }

  int port() const override { return listener_.port(); }

 private:
  void Loop() {
    std::vector<pollfd> polled;
    while (true) {
      polled.clear();
      polled.push_back({wake_[0], POLLIN, 0});
      polled.push_back({listener_.fd(), POLLIN, 0});
      for (const Connection& connection : connections_) {
        const bool reading = connection.sent == connection.response.size();
        polled.push_back(
            {connection.fd, static_cast<short>(reading ? POLLIN : POLLOUT), 0});
      }
      // The oldest connection's deadline is the first.
      int timeout_ms = -1;
      if (!connections_.empty()) {
        const absl::Duration left =
            connections_.front().deadline - Clock::Real()->Now();
        timeout_ms = static_cast<int>(
            std::max<int64_t>(0, absl::ToInt64Milliseconds(left) + 1));
      }
      if (poll(polled.data(), polled.size(), timeout_ms) < 0 &&
          errno != EINTR) {
        return;
      }
      if (polled[0].revents != 0) return;
      const Instant now = Clock::Real()->Now();
      auto connection = connections_.begin();
      for (size_t i = 2; i < polled.size(); ++i) {
        const bool ended = (polled[i].revents != 0 && !Advance(*connection)) ||
                           connection->deadline <= now;
        if (ended) close(connection->fd);
        connection =
            ended ? connections_.erase(connection) : std::next(connection);
      }
      if (polled[1].revents != 0) Accept(now);
    }
  }

  void Accept(Instant now) {
    const int fd =
        accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    const bool no_descriptor = fd < 0 && (errno == EMFILE || errno == ENFILE);
    if ((no_descriptor || connections_.size() >= kMaxConnections) &&
        !connections_.empty()) {
      close(connections_.front().fd);
      connections_.pop_front();
    }
    if (fd < 0) {
      // Not a busy loop while other parts of the process hold them all.
      pollfd stop = {wake_[0], POLLIN, 0};
      if (no_descriptor) poll(&stop, 1, /*timeout=*/100);
      return;
    }
    connections_.emplace_back();
    connections_.back().fd = fd;
    connections_.back().deadline = now + kPatience;
  }

  // Does what can be done without waiting; false when the connection is over.
  bool Advance(Connection& connection) {
    if (connection.response.empty()) {
      char buffer[4096];
      const ssize_t got = recv(connection.fd, buffer, sizeof(buffer), 0);
      if (got < 0) return errno == EAGAIN || errno == EINTR;
      if (got == 0) return false;
      connection.request.append(buffer, static_cast<size_t>(got));
      if (connection.request.find("\r\n\r\n") == std::string::npos) {
        return connection.request.size() < kMaxRequest;
      }
      connection.response = Answer(connection.request);
    }
    if (connection.sent < connection.response.size()) {
      const ssize_t put =
          send(connection.fd, connection.response.data() + connection.sent,
               connection.response.size() - connection.sent, MSG_NOSIGNAL);
      if (put < 0) return errno == EAGAIN || errno == EINTR;
      connection.sent += static_cast<size_t>(put);
      if (connection.sent == connection.response.size()) {
        shutdown(connection.fd, SHUT_WR);
      }
      return true;
    }
    // Read until the peer ends: a close with unread bytes would reset the
    // connection and with it what the peer has not read of the answer.
    char rest[4096];
    const ssize_t got = recv(connection.fd, rest, sizeof(rest), 0);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
  }

  std::string Answer(absl::string_view request) const {
    const std::vector<absl::string_view> words =
        absl::StrSplit(request.substr(0, request.find("\r\n")), ' ');
    if (words.size() != 3 || words[2].substr(0, 5) != "HTTP/") {
      return Response("400 Bad Request", "not an HTTP request\n", false);
    }
    const bool head = words[0] == "HEAD";
    if (!head && words[0] != "GET") {
      return Response("405 Method Not Allowed", "only GET and HEAD\n", false);
    }
    const absl::string_view path = words[1].substr(0, words[1].find('?'));
    if (path == "/metrics") return Response("200 OK", registry_->Text(), head);
    // Alive means that this answers; it must not depend on peers or the disk.
    if (path == "/livez") return Response("200 OK", "ok\n", head);
    if (path == "/readyz" || path == "/healthz") {
      const std::string reason = not_ready_ ? not_ready_() : "";
      if (reason.empty()) return Response("200 OK", "ok\n", head);
      return Response("503 Service Unavailable",
                      absl::StrCat("not ready: ", reason, "\n"), head);
    }
    return Response("404 Not Found", "not found; try /metrics /livez /readyz\n",
                    head);
  }

  static std::string Response(absl::string_view status, const std::string& body,
                              bool head) {
    // The version is that of the Prometheus text format.
    return absl::StrCat("HTTP/1.1 ", status,
                        "\r\nContent-Type: text/plain; version=0.0.4; "
                        "charset=utf-8\r\nContent-Length: ",
                        body.size(), "\r\nConnection: close\r\n\r\n",
                        head ? "" : body);
  }

  const Listener listener_;
  const MetricsRegistry* const registry_;
  const std::function<std::string()> not_ready_;
  int wake_[2] = {-1, -1};
  std::list<Connection> connections_;  // Of the thread, oldest first.
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& address, const MetricsRegistry* registry,
    std::function<std::string()> not_ready) {
  absl::StatusOr<Listener> listener = Listener::Open(address);
  if (!listener.ok()) {
    return absl::Status(listener.status().code(),
                        absl::StrCat(listener.status().message(),
                                     "; change listen.metrics or stop what "
                                     "listens there"));
  }
  auto server = std::make_unique<PollServer>(*std::move(listener), registry,
                                             std::move(not_ready));
  RETURN_IF_ERROR(server->Start());
  return std::unique_ptr<MetricsServer>(std::move(server));
}

}  // namespace diloco

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/metrics/metrics.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

int Connect(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&address),
                    sizeof(address)) == 0);
  return fd;
}

// What comes until the peer ends the connection.
std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::recv(fd, buffer, sizeof(buffer), 0)) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  ::close(fd);
  return text;
}

// The whole response to one request on 127.0.0.1.
std::string Request(int port, const std::string& line) {
  const int fd = Connect(port);
  const std::string request =
      absl::StrCat(line, " HTTP/1.1\r\nHost: x\r\n\r\n");
  REQUIRE(::send(fd, request.data(), request.size(), 0) ==
          static_cast<ssize_t>(request.size()));
  return ReadAll(fd);
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("metrics and probes are served over HTTP") {
  MetricsRegistry registry;
  registry.AddCounter("diloco_test_a_total", "A.")->Increment(2);
  std::atomic<bool> ready{false};
  auto server = MetricsServer::Start("127.0.0.1:0", &registry, [&] {
    return std::string(ready ? "" : "recovering the journal");
  });
  REQUIRE(server.ok());
  const int port = (*server)->port();
  REQUIRE(port > 0);

  REQUIRE(Has(Request(port, "GET /metrics"), "\ndiloco_test_a_total 2\n"));
  REQUIRE(Has(Request(port, "GET /metrics"), "version=0.0.4"));
  REQUIRE(Has(Request(port, "GET /livez"), "200 OK"));
  REQUIRE(Has(Request(port, "GET /readyz"), "503"));
  REQUIRE(
      Has(Request(port, "GET /readyz"), "not ready: recovering the journal"));
  ready = true;
  REQUIRE(Has(Request(port, "GET /readyz?verbose"), "200 OK"));
  REQUIRE(Has(Request(port, "GET /healthz"), "200 OK"));
  REQUIRE(Has(Request(port, "GET /"), "404"));
  REQUIRE(Has(Request(port, "POST /metrics"), "405"));
  REQUIRE_FALSE(Has(Request(port, "HEAD /metrics"), "diloco_test_a_total"));
}

TEST_CASE("silent connections delay neither a probe nor the stop") {
  MetricsRegistry registry;
  auto server = MetricsServer::Start("127.0.0.1:0", &registry, nullptr);
  REQUIRE(server.ok());
  const Instant start = Clock::Real()->Now();
  std::vector<int> silent;
  for (int i = 0; i < 40; ++i) {
    silent.push_back(Connect((*server)->port()));
    // Half of them stop within their request.
    if (i % 2 == 0) REQUIRE(::send(silent.back(), "GET /li", 7, 0) == 7);
  }
  REQUIRE(Has(Request((*server)->port(), "GET /livez"), "200 OK"));
  server->reset();
  // One after the other they could have held it up for a second each.
  REQUIRE(Clock::Real()->Now() - start < absl::Seconds(4));
  for (const int fd : silent) ::close(fd);
}

TEST_CASE("a probe behind more silent connections than threads is answered") {
  MetricsRegistry registry;
  auto server = MetricsServer::Start("127.0.0.1:0", &registry, nullptr);
  REQUIRE(server.ok());
  std::vector<int> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(Connect((*server)->port()));
  REQUIRE(Has(Request((*server)->port(), "GET /livez"), "200 OK"));
  // The first ones had to go.
  char byte;
  REQUIRE(::recv(silent.front(), &byte, 1, 0) == 0);
  for (const int fd : silent) ::close(fd);
}

TEST_CASE("what is not a request of ours is answered or closed") {
  MetricsRegistry registry;
  auto server = MetricsServer::Start("127.0.0.1:0", &registry, nullptr);
  REQUIRE(server.ok());
  const int port = (*server)->port();
  REQUIRE(Has(Request(port, "one two three"), "400"));
  const int fd = Connect(port);
  const std::string endless(64 << 10, 'x');
  ssize_t sent = ::send(fd, endless.data(), endless.size(), MSG_NOSIGNAL);
  REQUIRE(sent > 0);
  const std::string response = ReadAll(fd);
  INFO(response);
  REQUIRE((response.empty() || Has(response, " 400 ")));
  REQUIRE(Has(Request(port, "GET /livez"), "200 OK"));
}

TEST_CASE("an address in use is named, with what to do") {
  MetricsRegistry registry;
  auto first = MetricsServer::Start("127.0.0.1:0", &registry, nullptr);
  REQUIRE(first.ok());
  const std::string address = absl::StrCat("127.0.0.1:", (*first)->port());
  auto second = MetricsServer::Start(address, &registry, nullptr);
  REQUIRE(second.status().code() == absl::StatusCode::kUnavailable);
  REQUIRE(Has(std::string(second.status().message()), address));
  REQUIRE(Has(std::string(second.status().message()), "listen.metrics"));
}

TEST_CASE("a metrics address that can never be had is refused") {
  MetricsRegistry registry;
  for (const char* bad :
       {"", "7601", ":7601", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000",
        "192.0.2.1:7601", "no-such-host.invalid:7601", "[::1]:0"}) {
    INFO(bad);
    REQUIRE(MetricsServer::Start(bad, &registry, nullptr).status().code() ==
            absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace diloco

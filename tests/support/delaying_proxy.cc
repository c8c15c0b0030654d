#include "tests/support/delaying_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/logging.h"

namespace diloco {
namespace {

constexpr size_t kPiece = 16 << 10;
// How soon a thread notices that it is to end.
constexpr int kLookMs = 10;
// What a link holds back when it is slow, and when it is only late.
constexpr size_t kSmallBuffer = 64 << 10;
constexpr size_t kLargeBuffer = 64 << 20;

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void ResetOnClose(int fd) {
  const linger now = {1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

bool SendAll(int fd, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::send(fd, bytes.data() + done, bytes.size() - done,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      done += static_cast<size_t>(n);
      continue;
    }
    if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) return false;
    pollfd wait = {.fd = fd, .events = POLLOUT, .revents = 0};
    ::poll(&wait, 1, kLookMs);
    if ((wait.revents & (POLLERR | POLLHUP)) != 0) return false;
  }
  return true;
}

}  // namespace

struct DelayingProxy::Link {
  int client = -1;
  int server = -1;
  uint64_t bytes_up = 0;  // Guarded by the proxy's mutex.
  std::atomic<bool> closed{false};
  int open_ends = 2;  // Guarded by the proxy's mutex.
  bool gone = false;  // Likewise.
  std::thread up;
  std::thread down;
};

DelayingProxy::DelayingProxy(int target_port) : target_port_(target_port) {
  listen_fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
  // Small buffers, so that what is on its way is mostly in our hands.
  const int buffer = kSmallBuffer;
  ::setsockopt(listen_fd_, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  DILOCO_CHECK(::bind(listen_fd_, generic, size) == 0);
  DILOCO_CHECK(::listen(listen_fd_, 64) == 0);
  DILOCO_CHECK(::getsockname(listen_fd_, generic, &size) == 0);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

DelayingProxy::~DelayingProxy() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  acceptor_.join();
  std::list<std::unique_ptr<Link>> links;
  {
    MutexLock lock(&mu_);
    links.swap(links_);
  }
  for (auto& link : links) {
    link->closed = true;
    link->up.join();
    link->down.join();
  }
  ::close(listen_fd_);
}

bool DelayingProxy::stopping() const {
  MutexLock lock(&mu_);
  return stopping_;
}

void DelayingProxy::Accept() {
  while (!stopping()) {
    pollfd wait = {.fd = listen_fd_, .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, kLookMs) <= 0) continue;
    const int client = ::accept(listen_fd_, nullptr, nullptr);
    if (client < 0) continue;
    const int server = ::socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in target = Loopback(target_port_);
    MutexLock lock(&mu_);
    ++connections_;
    if (refuse_ || ::connect(server, reinterpret_cast<const sockaddr*>(&target),
                             sizeof(target)) != 0) {
      ResetOnClose(client);
      ::close(client);
      ::close(server);
      continue;
    }
    const int on = 1;
    ::setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    ::setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    auto link = std::make_unique<Link>();
    link->client = client;
    link->server = server;
    Link* const raw = link.get();
    link->up = std::thread([this, raw] { Pump(raw, true); });
    link->down = std::thread([this, raw] { Pump(raw, false); });
    links_.push_back(std::move(link));
  }
}

DelayingProxy::Rules DelayingProxy::Account(Link* link, bool up,
                                            std::string* bytes) {
  MutexLock lock(&mu_);
  changed_.SignalAll();
  Rules rules{.delay = delay_, .rate = rate_, .swallow = black_hole_};
  if (!up) {
    bytes_down_ += bytes->size();
    return rules;
  }
  bytes_up_ += bytes->size();
  link->bytes_up += bytes->size();
  rules.cut = cut_every_ > 0 && link->bytes_up >= cut_every_;
  if (!marker_.empty() && !corrupted_) {
    const size_t at = bytes->find(marker_);
    if (at != std::string::npos && at + marker_.size() < bytes->size()) {
      (*bytes)[at + marker_.size()] ^= 1;
      corrupted_ = true;
    }
  }
  return rules;
}

void DelayingProxy::Pump(Link* link, bool up) {
  const int from = up ? link->client : link->server;
  const int to = up ? link->server : link->client;
  Clock* const clock = Clock::Real();
  std::deque<std::pair<Instant, std::string>> queue;  // By time of delivery.
  size_t queued = 0;
  size_t limit = kSmallBuffer;
  Instant free_at = clock->Now();
  bool ended = false;
  while (!link->closed && !(ended && queue.empty())) {
    int timeout = kLookMs;
    if (!queue.empty()) {
      timeout = static_cast<int>(std::clamp<int64_t>(
          absl::ToInt64Milliseconds(queue.front().first - clock->Now()), 0,
          kLookMs));
    }
    pollfd wait = {.fd = from, .events = POLLIN, .revents = 0};
    const bool room = !ended && queued < limit;
    ::poll(&wait, room ? 1 : 0, timeout);
    if (room && wait.revents != 0) {
      std::string bytes(kPiece, '\0');
      const ssize_t n = ::recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (n == 0) ended = true;
      if (n < 0 && errno != EAGAIN) break;
      if (n > 0) {
        bytes.resize(static_cast<size_t>(n));
        const Rules rules = Account(link, up, &bytes);
        if (rules.cut) break;
        limit =
            rules.delay > absl::ZeroDuration() ? kLargeBuffer : kSmallBuffer;
        const Instant now = clock->Now();
        free_at = std::max(free_at, now);
        if (rules.rate > 0) {
          free_at += absl::Seconds(static_cast<double>(n) /
                                   static_cast<double>(rules.rate));
        }
        if (!rules.swallow) {
          queued += bytes.size();
          queue.emplace_back(free_at + rules.delay, std::move(bytes));
        }
      }
    }
    while (!queue.empty() && queue.front().first <= clock->Now()) {
      if (!SendAll(to, queue.front().second)) {
        link->closed = true;
        break;
      }
      queued -= queue.front().second.size();
      queue.pop_front();
    }
  }
  link->closed = true;
  MutexLock lock(&mu_);
  if (--link->open_ends > 0) return;
  for (const int fd : {link->client, link->server}) {
    ResetOnClose(fd);
    ::close(fd);
  }
  link->gone = true;
  changed_.SignalAll();
}

void DelayingProxy::SetDelay(absl::Duration one_way) {
  MutexLock lock(&mu_);
  delay_ = one_way;
}
void DelayingProxy::SetRate(uint64_t bytes_per_second) {
  MutexLock lock(&mu_);
  rate_ = bytes_per_second;
}
void DelayingProxy::CutEvery(uint64_t bytes_up) {
  MutexLock lock(&mu_);
  cut_every_ = bytes_up;
}
void DelayingProxy::CutAll() {
  MutexLock lock(&mu_);
  // Those that come meanwhile are left alone.
  std::vector<Link*> links;
  for (auto& link : links_) links.push_back(link.get());
  for (Link* link : links) link->closed = true;
  for (Link* link : links) {
    while (!link->gone) changed_.Wait(&mu_);
  }
}
void DelayingProxy::SetBlackHole(bool on) {
  MutexLock lock(&mu_);
  black_hole_ = on;
}
void DelayingProxy::Refuse(bool on) {
  MutexLock lock(&mu_);
  refuse_ = on;
}
void DelayingProxy::CorruptAfter(std::string marker) {
  MutexLock lock(&mu_);
  marker_ = std::move(marker);
  corrupted_ = false;
}
bool DelayingProxy::WaitFor(const uint64_t& counter, uint64_t bytes,
                            absl::Duration timeout) {
  const Instant end = Clock::Real()->Now() + timeout;
  while (counter < bytes) {
    const absl::Duration left = end - Clock::Real()->Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(&mu_, left);
  }
  return true;
}
bool DelayingProxy::WaitForBytesUp(uint64_t bytes, absl::Duration timeout) {
  MutexLock lock(&mu_);
  return WaitFor(bytes_up_, bytes, timeout);
}
bool DelayingProxy::WaitForBytesDown(uint64_t bytes, absl::Duration timeout) {
  MutexLock lock(&mu_);
  return WaitFor(bytes_down_, bytes, timeout);
}
uint64_t DelayingProxy::bytes_up() const {
  MutexLock lock(&mu_);
  return bytes_up_;
}
uint64_t DelayingProxy::bytes_down() const {
  MutexLock lock(&mu_);
  return bytes_down_;
}
int DelayingProxy::connections() const {
  MutexLock lock(&mu_);
  return connections_;
}
bool DelayingProxy::corrupted() const {
  MutexLock lock(&mu_);
  return corrupted_;
}

}  // namespace diloco

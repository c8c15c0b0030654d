#include "tests/support/delaying_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <deque>
#include <utility>

#include "common/base/logging.h"

namespace diloco {
namespace {

// What the kernel may hold of a connection that is not read: small, so that
// what is on its way is mostly in our hands.
constexpr int kSocketBuffer = 64 << 10;
// What a flow holds on a line without a rate: as long as it is on its way, or,
// without a delay, until the other side takes it.
constexpr uint64_t kLongLine = 64 << 20;
constexpr uint64_t kShortLine = 64 << 10;
// Of one connection before the next one's turn: as much as passes in 2 ms.
constexpr uint64_t kMinPiece = 4 << 10;
constexpr uint64_t kMaxPiece = 256 << 10;
constexpr uint64_t kTurnsPerSecond = 500;

constexpr absl::Duration kForever = absl::Hours(1);

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void ResetAndClose(int fd) {
  const linger now = {1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  ::close(fd);
}

void SetOption(int fd, int level, int option, int value) {
  ::setsockopt(fd, level, option, &value, sizeof(value));
}

}  // namespace

// One direction of a connection.
struct DelayingProxy::Flow {
  struct Piece {
    Instant due;
    std::string bytes;
  };

  int from = -1;
  int to = -1;
  Lane* lane = nullptr;
  std::deque<Piece> line;  // By time of delivery.
  uint64_t held = 0;       // Bytes in `line`.
  size_t sent = 0;         // Of its first piece.
  uint64_t carried = 0;
  bool readable = false;
  bool blocked = false;  // The other side takes nothing now.
  bool ended = false;    // The sender has closed.
};

struct DelayingProxy::Link {
  Flow up;
  Flow down;
  Instant last_byte;
  bool lost = false;  // Swallows everything.
  bool over = false;
};

DelayingProxy::DelayingProxy(int target_port, int port)
    : target_port_(target_port) {
  listen_fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  wake_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  DILOCO_CHECK(wake_fd_ >= 0);
  SetOption(listen_fd_, SOL_SOCKET, SO_RCVBUF, kSocketBuffer);
  SetOption(listen_fd_, SOL_SOCKET, SO_REUSEADDR, 1);
  sockaddr_in address = Loopback(port);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  DILOCO_CHECK(::bind(listen_fd_, generic, size) == 0) << "port " << port;
  DILOCO_CHECK(::listen(listen_fd_, 256) == 0);
  DILOCO_CHECK(::getsockname(listen_fd_, generic, &size) == 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Run(); });
}

DelayingProxy::~DelayingProxy() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    Wake();
  }
  thread_.join();
  ::close(listen_fd_);
  ::close(wake_fd_);
}

void DelayingProxy::Wake() {
  const uint64_t one = 1;
  DILOCO_CHECK(::write(wake_fd_, &one, sizeof(one)) == sizeof(one));
}

void DelayingProxy::Run() {
  std::vector<pollfd> polled;
  absl::Duration wait;
  while (true) {
    {
      MutexLock lock(&mu_);
      if (stopping_) cut_all_ = true;
      Work(&polled, &wait);
      if (stopping_) return;
    }
    const timespec timeout = absl::ToTimespec(wait);
    ::ppoll(polled.data(), polled.size(), &timeout, nullptr);
    uint64_t ignored;
    while (::read(wake_fd_, &ignored, sizeof(ignored)) > 0) {
    }
    MutexLock lock(&mu_);
    if (polled[1].revents != 0) Accept();
    // The same links in the same order as when `polled` was made; new ones are
    // behind them.
    auto link = links_.begin();
    for (size_t i = 2; i + 1 < polled.size(); i += 2, ++link) {
      link->up.readable = (polled[i].revents & ~POLLOUT) != 0;
      link->down.readable = (polled[i + 1].revents & ~POLLOUT) != 0;
      if ((polled[i].revents & ~POLLIN) != 0) link->down.blocked = false;
      if ((polled[i + 1].revents & ~POLLIN) != 0) link->up.blocked = false;
    }
  }
}

void DelayingProxy::Accept() {
  const int client = ::accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
  if (client < 0) return;
  ++connections_;
  const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  SetOption(server, SOL_SOCKET, SO_RCVBUF, kSocketBuffer);
  const sockaddr_in target = Loopback(target_port_);
  if (refuse_ || ::connect(server, reinterpret_cast<const sockaddr*>(&target),
                           sizeof(target)) != 0) {
    ResetAndClose(client);
    ::close(server);
    return;
  }
  SetOption(client, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(server, IPPROTO_TCP, TCP_NODELAY, 1);
  Link& link = links_.emplace_back();
  link.last_byte = Clock::Real()->Now();
  link.up.from = link.down.to = client;
  link.up.to = link.down.from = server;
  link.up.lane = &up_;
  link.down.lane = &down_;
}

void DelayingProxy::Work(std::vector<pollfd>* polled, absl::Duration* wait) {
  const Instant now = Clock::Real()->Now();
  // Who comes first finds room: not always the same.
  if (links_.size() > 1) links_.splice(links_.end(), links_, links_.begin());
  for (auto it = links_.begin(); it != links_.end();) {
    Link* const link = &*it;
    if (forget_after_ > absl::ZeroDuration() && !link->lost &&
        now - link->last_byte >= forget_after_) {
      link->lost = true;
      ++forgotten_;
    }
    if (cut_all_) link->over = true;
    if (!link->over && !stall_) {
      Move(link, &link->up, now);
      Move(link, &link->down, now);
    }
    if (!link->over) {
      ++it;
      continue;
    }
    ResetAndClose(link->up.from);
    ResetAndClose(link->up.to);
    it = links_.erase(it);
  }
  cut_all_ = false;
  changed_.SignalAll();

  polled->assign(2, {.fd = wake_fd_, .events = POLLIN, .revents = 0});
  (*polled)[1].fd = listen_fd_;
  *wait = kForever;
  for (const Link& link : links_) {
    pollfd ends[2] = {{.fd = link.up.from, .events = 0, .revents = 0},
                      {.fd = link.up.to, .events = 0, .revents = 0}};
    for (const Flow* flow : {&link.up, &link.down}) {
      const int from = flow == &link.up ? 0 : 1;
      if (stall_) continue;
      if (flow->blocked) {
        ends[1 - from].events |= POLLOUT;
      } else if (!flow->line.empty()) {
        *wait = std::min(*wait, flow->line.front().due - now);
      }
      if (flow->ended) continue;
      const absl::Duration full = RoomAt(*flow) - now;
      if (full <= absl::ZeroDuration()) {
        ends[from].events |= POLLIN;
      } else {
        *wait = std::min(*wait, full);
      }
    }
    for (pollfd& end : ends) {
      // poll reports a hang-up even when nothing is asked for.
      if (end.events == 0) end.fd = -1;
      polled->push_back(end);
    }
    if (forget_after_ > absl::ZeroDuration() && !link.lost) {
      *wait = std::min(*wait, link.last_byte + forget_after_ - now);
    }
  }
  *wait = std::max(*wait, absl::ZeroDuration());
}

size_t DelayingProxy::PieceBytes() const {
  if (rate_ == 0) return kMaxPiece / 4;
  return std::clamp(rate_ / kTurnsPerSecond, kMinPiece, kMaxPiece);
}

Instant DelayingProxy::RoomAt(const Flow& flow) const {
  constexpr Instant kNotByTime = absl::InfiniteDuration();
  // Half of it is acknowledgements on their way back.
  if (window_ > 0 && delay_ > absl::ZeroDuration() &&
      flow.held >= window_ / 2) {
    return kNotByTime;
  }
  if (rate_ == 0) {
    const uint64_t limit =
        delay_ > absl::ZeroDuration() ? kLongLine : kShortLine;
    return flow.held < limit ? Instant() : kNotByTime;
  }
  const double rate = static_cast<double>(rate_);
  const double on_the_way = rate * absl::ToDoubleSeconds(delay_);
  // More than the line can hold: the receiver does not keep up.
  if (static_cast<double>(flow.held) >
      on_the_way + static_cast<double>(queue_ + PieceBytes())) {
    return kNotByTime;
  }
  return flow.lane->free_at - absl::Seconds(static_cast<double>(queue_) / rate);
}

void DelayingProxy::Move(Link* link, Flow* flow, Instant now) {
  if (flow->readable && RoomAt(*flow) <= now && !TakeIn(link, flow, now)) {
    link->over = true;
  }
  flow->readable = false;
  if (!link->over && !PassOn(flow, now)) link->over = true;
  if (flow->ended && flow->line.empty()) link->over = true;
}

bool DelayingProxy::TakeIn(Link* link, Flow* flow, Instant now) {
  std::string bytes(PieceBytes(), '\0');
  const ssize_t n =
      ::recv(flow->from, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (n < 0) return errno == EAGAIN;
  if (n == 0) {
    flow->ended = true;
    return true;
  }
  bytes.resize(static_cast<size_t>(n));
  link->last_byte = now;
  flow->lane->bytes += bytes.size();
  flow->carried += bytes.size();
  if (cut_every_ > 0 && flow->carried >= cut_every_) {
    ++cuts_;
    return false;
  }
  if (black_hole_) link->lost = true;
  if (flow->lane == &up_) Damage(&bytes);
  Instant& free_at = flow->lane->free_at;
  free_at = std::max(free_at, now);
  if (rate_ > 0) {
    free_at +=
        absl::Seconds(static_cast<double>(n) / static_cast<double>(rate_));
  }
  if (link->lost) return true;
  flow->held += bytes.size();
  flow->line.push_back({free_at + delay_, std::move(bytes)});
  return true;
}

bool DelayingProxy::PassOn(Flow* flow, Instant now) {
  while (!flow->blocked && !flow->line.empty() &&
         flow->line.front().due <= now) {
    const std::string& bytes = flow->line.front().bytes;
    const ssize_t n =
        ::send(flow->to, bytes.data() + flow->sent, bytes.size() - flow->sent,
               MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      flow->blocked = errno == EAGAIN;
      if (!flow->blocked) return false;
      continue;
    }
    flow->sent += static_cast<size_t>(n);
    flow->held -= static_cast<uint64_t>(n);
    if (flow->sent < bytes.size()) continue;
    flow->line.pop_front();
    flow->sent = 0;
  }
  return true;
}

void DelayingProxy::Damage(std::string* bytes) {
  if (marker_.empty() || corrupted_) return;
  const size_t at = bytes->find(marker_);
  if (at == std::string::npos || at + marker_.size() >= bytes->size()) return;
  (*bytes)[at + marker_.size()] ^= 1;
  corrupted_ = true;
}

void DelayingProxy::SetDelay(absl::Duration one_way) {
  MutexLock lock(&mu_);
  delay_ = one_way;
}
void DelayingProxy::SetRate(uint64_t bytes_per_second) {
  MutexLock lock(&mu_);
  rate_ = bytes_per_second;
  Wake();
}
void DelayingProxy::SetQueue(uint64_t bytes) {
  MutexLock lock(&mu_);
  queue_ = bytes;
  Wake();
}
void DelayingProxy::SetWindow(uint64_t bytes) {
  MutexLock lock(&mu_);
  window_ = bytes;
  Wake();
}
void DelayingProxy::CutEvery(uint64_t bytes) {
  MutexLock lock(&mu_);
  cut_every_ = bytes;
}
void DelayingProxy::CutAll() {
  MutexLock lock(&mu_);
  cut_all_ = true;
  Wake();
  while (cut_all_) changed_.Wait(&mu_);
}
void DelayingProxy::Stall(bool on) {
  MutexLock lock(&mu_);
  stall_ = on;
  Wake();
}
void DelayingProxy::SetBlackHole(bool on) {
  MutexLock lock(&mu_);
  black_hole_ = on;
}
void DelayingProxy::ForgetIdle(absl::Duration after) {
  MutexLock lock(&mu_);
  forget_after_ = after;
  Wake();
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
  return WaitFor(up_.bytes, bytes, timeout);
}
bool DelayingProxy::WaitForBytesDown(uint64_t bytes, absl::Duration timeout) {
  MutexLock lock(&mu_);
  return WaitFor(down_.bytes, bytes, timeout);
}
bool DelayingProxy::WaitForForgotten(uint64_t connections,
                                     absl::Duration timeout) {
  MutexLock lock(&mu_);
  return WaitFor(forgotten_, connections, timeout);
}
uint64_t DelayingProxy::bytes_up() const {
  MutexLock lock(&mu_);
  return up_.bytes;
}
uint64_t DelayingProxy::bytes_down() const {
  MutexLock lock(&mu_);
  return down_.bytes;
}
int DelayingProxy::connections() const {
  MutexLock lock(&mu_);
  return connections_;
}
int DelayingProxy::cuts() const {
  MutexLock lock(&mu_);
  return cuts_;
}
bool DelayingProxy::corrupted() const {
  MutexLock lock(&mu_);
  return corrupted_;
}

}  // namespace diloco

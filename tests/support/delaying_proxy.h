// A line between a client and a server on this machine, under a test's control:
// it delays, throttles, cuts, stalls, swallows and damages what passes.
//
//   DelayingProxy proxy(server_port);
//   proxy.SetRate(1250000);  // 10 Mbit/s, shared by all connections.
//   ... connect to proxy.port() ...
//
// One thread moves everything. The line has a queue of bounded size in front of
// it in each direction; what does not fit stays with its sender, and senders
// take turns in small pieces. `diloco-test-proxy` is this as a program.
#ifndef TESTS_SUPPORT_DELAYING_PROXY_H_
#define TESTS_SUPPORT_DELAYING_PROXY_H_

#include <poll.h>

#include <cstdint>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace diloco {

// Thread-safe. "Up" is from the connecting side to the target.
class DelayingProxy {
 public:
  // From 127.0.0.1:`port`, 0 for a free one, to 127.0.0.1:`target_port`.
  explicit DelayingProxy(int target_port, int port = 0);
  ~DelayingProxy();

  int port() const { return port_; }

  // Each byte arrives this much later, in each direction.
  void SetDelay(absl::Duration one_way);
  // Bytes per second and direction, of all connections together; 0: no limit.
  void SetRate(uint64_t bytes_per_second);
  // What may wait in front of a line with a rate, in each direction; 64 KiB
  // unless set.
  void SetQueue(uint64_t bytes);
  // What one connection has on its way and not yet acknowledged, as bounded by
  // the kernels of its ends; 0: no limit. Only where there is a delay.
  void SetWindow(uint64_t bytes);
  // A connection is reset once it has carried so many bytes in one direction;
  // 0: never.
  void CutEvery(uint64_t bytes);
  // Resets all connections that exist now; returns when it is done.
  void CutAll();
  // Nothing moves while on; what is on its way stays there and is not lost.
  void Stall(bool on);
  // Accepts and reads, but passes nothing on. What was swallowed is lost, so
  // its connections stay dead when this is set to false.
  void SetBlackHole(bool on);
  // A connection without a byte for so long is swallowed from then on, as by a
  // router that forgets it; zero: never.
  void ForgetIdle(absl::Duration after);
  // New connections are closed at once.
  void Refuse(bool on);
  // Flips a bit right behind the next occurrence of `marker` on its way up.
  void CorruptAfter(std::string marker);

  // Wait (real time) until so many bytes came; false after `timeout`.
  bool WaitForBytesUp(uint64_t bytes, absl::Duration timeout);
  bool WaitForBytesDown(uint64_t bytes, absl::Duration timeout);
  // Until ForgetIdle has done so with as many connections.
  bool WaitForForgotten(uint64_t connections, absl::Duration timeout);
  uint64_t bytes_up() const;
  uint64_t bytes_down() const;
  int connections() const;  // Accepted so far.
  int cuts() const;         // Connections that CutEvery ended.
  bool corrupted() const;   // CorruptAfter has done its work.

 private:
  // All connections in one direction.
  struct Lane {
    Instant free_at;  // When what was taken in has left the queue.
    uint64_t bytes = 0;
  };
  struct Flow;
  struct Link;

  bool WaitFor(const uint64_t& counter, uint64_t bytes, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Wake();
  void Run();
  void Accept() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Does what can be done now. What to wait for next goes to `polled` and, as
  // an upper bound on the time, to `wait`.
  void Work(std::vector<pollfd>* polled, absl::Duration* wait)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Move(Link* link, Flow* flow, Instant now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // False when the connection has ended.
  bool TakeIn(Link* link, Flow* flow, Instant now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool PassOn(Flow* flow, Instant now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Damage(std::string* bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // When the lane and the flow take more bytes; in the past: now.
  Instant RoomAt(const Flow& flow) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  size_t PieceBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int target_port_;
  int listen_fd_ = -1;
  int wake_fd_ = -1;
  int port_ = 0;
  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::Duration delay_ ABSL_GUARDED_BY(mu_);
  uint64_t rate_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t queue_ ABSL_GUARDED_BY(mu_) = 64 << 10;
  uint64_t window_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t cut_every_ ABSL_GUARDED_BY(mu_) = 0;
  bool cut_all_ ABSL_GUARDED_BY(mu_) = false;
  bool stall_ ABSL_GUARDED_BY(mu_) = false;
  bool black_hole_ ABSL_GUARDED_BY(mu_) = false;
  absl::Duration forget_after_ ABSL_GUARDED_BY(mu_);
  bool refuse_ ABSL_GUARDED_BY(mu_) = false;
  std::string marker_ ABSL_GUARDED_BY(mu_);
  bool corrupted_ ABSL_GUARDED_BY(mu_) = false;
  Lane up_ ABSL_GUARDED_BY(mu_);
  Lane down_ ABSL_GUARDED_BY(mu_);
  int connections_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t forgotten_ ABSL_GUARDED_BY(mu_) = 0;
  int cuts_ ABSL_GUARDED_BY(mu_) = 0;
  std::list<Link> links_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace diloco

#endif  // TESTS_SUPPORT_DELAYING_PROXY_H_

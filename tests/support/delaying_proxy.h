// A TCP proxy on 127.0.0.1 under a test's control: delays, throttles, cuts,
// swallows and damages what passes. Put between a client and a server.
//
//   DelayingProxy proxy(server_port);
//   proxy.CutEvery(2 << 20);
//   ... connect to proxy.port() ...
#ifndef TESTS_SUPPORT_DELAYING_PROXY_H_
#define TESTS_SUPPORT_DELAYING_PROXY_H_

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace diloco {

// Thread-safe. "Up" is from the connecting side to the target.
class DelayingProxy {
 public:
  explicit DelayingProxy(int target_port);
  ~DelayingProxy();

  int port() const { return port_; }

  // Each byte arrives this much later, in each direction.
  void SetDelay(absl::Duration one_way);
  // Bytes per second and direction; 0: no limit.
  void SetRate(uint64_t bytes_per_second);
  // A connection is reset once it has carried so many bytes up; 0: never.
  void CutEvery(uint64_t bytes_up);
  // Resets all connections that exist now; returns when it is done.
  void CutAll();
  // Accepts and reads, but passes nothing on, until set to false. What was
  // swallowed is lost, so its connections never recover.
  void SetBlackHole(bool on);
  // New connections are closed at once.
  void Refuse(bool on);
  // Flips a bit right behind the next occurrence of `marker` on its way up.
  void CorruptAfter(std::string marker);

  // Wait (real time) until so many bytes came; false after `timeout`.
  bool WaitForBytesUp(uint64_t bytes, absl::Duration timeout);
  bool WaitForBytesDown(uint64_t bytes, absl::Duration timeout);
  uint64_t bytes_up() const;
  uint64_t bytes_down() const;
  int connections() const;  // Accepted so far.
  bool corrupted() const;   // CorruptAfter has done its work.

 private:
  struct Link;

  bool WaitFor(const uint64_t& counter, uint64_t bytes, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Accept();
  void Pump(Link* link, bool up);
  // What is set now, and the bookkeeping for `bytes` that were read.
  struct Rules {
    absl::Duration delay;
    uint64_t rate = 0;
    bool cut = false;
    bool swallow = false;
  };
  Rules Account(Link* link, bool up, std::string* bytes);
  bool stopping() const;

  const int target_port_;
  int listen_fd_ = -1;
  int port_ = 0;
  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::Duration delay_ ABSL_GUARDED_BY(mu_);
  uint64_t rate_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t cut_every_ ABSL_GUARDED_BY(mu_) = 0;
  bool black_hole_ ABSL_GUARDED_BY(mu_) = false;
  bool refuse_ ABSL_GUARDED_BY(mu_) = false;
  std::string marker_ ABSL_GUARDED_BY(mu_);
  bool corrupted_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t bytes_up_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t bytes_down_ ABSL_GUARDED_BY(mu_) = 0;
  int connections_ ABSL_GUARDED_BY(mu_) = 0;
  std::list<std::unique_ptr<Link>> links_ ABSL_GUARDED_BY(mu_);
  std::thread acceptor_;
};

}  // namespace diloco

#endif  // TESTS_SUPPORT_DELAYING_PROXY_H_

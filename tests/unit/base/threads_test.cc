#include "common/base/threads.h"

#include "common/base/random_source.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

TEST_CASE("a thread of the machine is woken at a wait point, and joined") {
  Mutex mu;
  WaitPoint changed(Threads::Real());
  bool asked = false;
  bool answered = false;
  const auto thread = Threads::Real()->Start([&] {
    MutexLock lock(&mu);
    while (!asked) changed.Wait(&mu);
    answered = true;
    changed.SignalAll();
  });
  {
    MutexLock lock(&mu);
    asked = true;
    changed.SignalAll();
    while (!answered) changed.WaitFor(&mu, absl::Seconds(10));
  }
  thread->Join();
  REQUIRE(answered);
}

TEST_CASE("a draw is in [0, 1) and made of the source's bits") {
  REQUIRE(Draw([](size_t n) { return std::string(n, '\0'); }) == 0);
  const double most = Draw([](size_t n) { return std::string(n, '\xff'); });
  REQUIRE(most > 0.999999);
  REQUIRE(most < 1);
}

}  // namespace
}  // namespace diloco

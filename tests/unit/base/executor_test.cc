#include "common/base/executor.h"

#include <atomic>

#include "tests/support/catch.h"

namespace diloco {
namespace {

// Opens once.
class Gate {
 public:
  void Open() {
    MutexLock lock(&mu_);
    open_ = true;
    changed_.SignalAll();
  }
  void Wait() {
    MutexLock lock(&mu_);
    while (!open_) changed_.Wait(&mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
};

TEST_CASE("a thread pool runs everything it took before it ends") {
  std::atomic<int> ran{0};
  {
    ThreadPool pool("test", 2, 100);
    for (int i = 0; i < 50; ++i) REQUIRE(pool.Run([&] { ++ran; }).ok());
  }
  REQUIRE(ran == 50);
}

TEST_CASE("a full queue refuses at once and names itself") {
  Gate started, release;
  ThreadPool pool("spool", 1, 1);
  REQUIRE(pool.Run([&] {
                started.Open();
                release.Wait();
              })
              .ok());
  started.Wait();
  REQUIRE(pool.Run([] {}).ok());
  const absl::Status status = pool.Run([] {});
  REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(status.message().find("spool") != absl::string_view::npos);
  release.Open();
}

}  // namespace
}  // namespace diloco

// One run for the tests of coordinator/runtime: the real coordinator on a file
// system in memory and a clock that stands still, and workers that are a few
// calls.
//
//   TestRun run(/*workers=*/2);
//   REQUIRE(run.Start().ok());
//   run.JoinAll();
//   const TestUpdate update = run.NextUpdate("a");
//   REQUIRE(run.Deliver("a", update)->kind == UploadVerdict::Kind::kAccepted);
//   REQUIRE(run.AwaitVersion(1).ok());
//   run.End();
#ifndef TESTS_COMPONENT_COORDINATOR_TEST_RUN_H_
#define TESTS_COMPONENT_COORDINATOR_TEST_RUN_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "coordinator/runtime/coordinator.h"
#include "tests/support/fault_file_system.h"

namespace diloco {

inline constexpr char kStateDir[] = "state";

// Calls `hook` before what it does, on the caller's thread.
class HookedFileSystem final : public FaultFileSystem {
 public:
  enum class Call { kCreateDirs, kSyncDir, kRename, kFreeBytes };
  std::function<void(Call call, const std::string& path)> hook;

  absl::Status CreateDirs(const std::string& path) override {
    if (hook) hook(Call::kCreateDirs, path);
    return FaultFileSystem::CreateDirs(path);
  }
  absl::Status SyncDir(const std::string& path) override {
    if (hook) hook(Call::kSyncDir, path);
    return FaultFileSystem::SyncDir(path);
  }
  absl::StatusOr<uint64_t> FreeBytes(const std::string& path) override {
    if (hook) hook(Call::kFreeBytes, path);
    return FaultFileSystem::FreeBytes(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (hook) hook(Call::kRename, to);
    return FaultFileSystem::Rename(from, to);
  }
};

struct TestUpdate {
  uint32_t fragment = 0;
  uint64_t round = 0;
  UpdateValue value;
  std::string bytes;
};

// One thread, but for BeginUpload, Send and Finish, which may run on several.
class TestRun {
 public:
  // Workers are named "a", "b", ...; the first round waits for all of them.
  explicit TestRun(int workers);
  ~TestRun();

  // Starts a process on what the file system holds.
  absl::Status Start();
  // Ends it: nothing more is written. What was not fsynced stays (KillProcess)
  // until the caller says fs.Crash().
  void End();
  // What the process said when it could not go on; OK: it can.
  absl::Status fatal() const;

  // Those that have no session yet; a join whose reply was lost is repeated.
  // `last_seen` is what their scratch directories remember.
  void JoinAll(const Fencing& last_seen = Fencing());
  // UNAVAILABLE when the process has ended.
  absl::StatusOr<ViewOutcome> View(const std::string& worker);
  // Until `version` is published; not OK when the process ends before.
  absl::Status AwaitVersion(uint64_t version, uint32_t fragment = 0);
  StatusReport Status();
  absl::StatusOr<SettingsChanged> Change(SettingsChange change);
  // A process of that name with the scratch of those settings takes over.
  absl::Status JoinWith(const std::string& worker, const Digest& settings);
  // Whether rounds open.
  void Pause(bool paused);
  // Waits for an alarm with `part` in it: NotReady's words.
  std::string AwaitTrouble(const std::string& part = "");
  // What the journal says so far.
  std::vector<EventReport> Events();
  Digest digest() { return Status().fragments[0].digest; }

  // The update that `worker` owes: constant `scale` times what depends on
  // worker, round and element. Absent: it holds no lease.
  std::optional<TestUpdate> FindUpdate(const std::string& worker,
                                       float scale = 1);
  TestUpdate NextUpdate(const std::string& worker, float scale = 1);
  TestUpdate UpdateOf(const LeaseView& lease, std::vector<float> values) const;
  std::vector<float> Values(const std::string& worker, uint64_t round,
                            float scale) const;

  absl::StatusOr<BeginOutcome> Begin(const std::string& worker,
                                     const TestUpdate& update);
  // The bytes from `offset` on, in small chunks, up to `end`.
  absl::Status Send(const std::string& worker, const TestUpdate& update,
                    uint64_t offset, uint64_t end = UINT64_MAX);
  absl::StatusOr<FinishOutcome> Finish(const std::string& worker,
                                       const TestUpdate& update);
  // All three; a Begin that says more than "send" is the outcome.
  absl::StatusOr<FinishOutcome> Deliver(const std::string& worker,
                                        const TestUpdate& update);
  // Every worker delivers for the open round.
  void DeliverAll();

  // Names of files below the state directory that contain `part`.
  std::vector<std::string> FilesWith(const std::string& part);

  HookedFileSystem fs;
  ManualClock clock;
  CoordinatorOptions options;  // May be changed before Start.
  std::unique_ptr<MetricsRegistry> metrics;
  std::unique_ptr<Coordinator> coordinator;
  std::vector<std::string> workers;
  std::map<std::string, std::string> sessions;

 private:
  template <typename T>
  absl::StatusOr<T> Wait(const std::function<void(Done<T>)>& start);

  mutable Mutex mu_;
  CondVar changed_;
  std::map<std::string, std::string> attempts_;  // Of joins without a reply.
  absl::Status fatal_ ABSL_GUARDED_BY(mu_);
};

}  // namespace diloco

#endif  // TESTS_COMPONENT_COORDINATOR_TEST_RUN_H_

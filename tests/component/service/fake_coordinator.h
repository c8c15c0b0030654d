// A Coordinator that answers as a test tells it, for tests of the services and
// the worker's port: one open upload in memory, long polls that wait until
// released, files from a directory.
#ifndef TESTS_COMPONENT_SERVICE_FAKE_COORDINATOR_H_
#define TESTS_COMPONENT_SERVICE_FAKE_COORDINATOR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "coordinator/runtime/coordinator.h"

namespace diloco {

// Thread-safe.
class FakeCoordinator : public Coordinator {
 public:
  FakeCoordinator();

  // What the next calls find. Set before the calls that depend on it.
  void SetFencing(const Fencing& fencing);
  void SetRevision(uint64_t revision);  // Answers the polls that wait.
  void ExpirePolls();                   // Answers them all as at max_wait.
  void AddFile(const Digest& digest, const std::string& path, uint64_t bytes);
  // Before the next Write the spool loses what lies behind `offset`.
  void RewindNextWrite(uint64_t offset);
  // FinishUpload says so many times first that another call is under way.
  void SetBusy(int times);
  void SetVerdict(UploadVerdict::Kind kind, const std::string& reason);
  void SetBeginError(const absl::Status& status);
  // Every Watch is held; nothing answers it but SetRevision and ExpirePolls.
  size_t waiting_polls() const;
  absl::Duration last_max_wait() const;

  // What came.
  std::string uploaded() const;
  std::optional<UpdateValue> value() const;
  uint64_t bulk_received() const;
  uint64_t bulk_sent() const;
  int begins() const;
  uint64_t last_begin_offset() const;
  int finishes() const;
  std::optional<JoinEvent> joined() const;
  std::optional<WorkerProgress> progress() const;
  std::optional<Event> admin_event() const;
  std::string left() const;

  // Waits (real time, at most 30 s) until `polls` long polls wait here.
  bool WaitForPolls(size_t polls);
  bool WaitForUploaded(uint64_t bytes);

  // Coordinator.
  void Join(JoinEvent event, Fencing last_seen, std::optional<Digest> digest,
            Done<JoinOutcome> done) override;
  void Watch(std::string session, Fencing fencing, uint64_t known_revision,
             absl::Duration max_wait, Done<ViewOutcome> done) override;
  void Beat(std::string session, Fencing fencing, WorkerProgress progress,
            Done<uint64_t> done) override;
  void Resolve(std::string session, Fencing fencing, uint32_t fragment,
               std::optional<uint64_t> have,
               Done<ResolveOutcome> done) override;
  void ReportEval(std::string session, Fencing fencing, EvalReportEvent report,
                  std::function<void(absl::Status)> done) override;
  void Leave(std::string session, Fencing fencing, std::string reason,
             std::function<void(absl::Status)> done) override;
  absl::StatusOr<BeginOutcome> BeginUpload(const std::string& session,
                                           const Fencing& fencing,
                                           uint32_t fragment, uint64_t round,
                                           const UpdateValue& value) override;
  absl::StatusOr<std::shared_ptr<Upload>> OpenUpload(const std::string& session,
                                                     const Fencing& fencing,
                                                     uint32_t fragment,
                                                     uint64_t round) override;
  absl::StatusOr<FinishOutcome> FinishUpload(const std::string& session,
                                             const Fencing& fencing,
                                             uint32_t fragment, uint64_t round,
                                             const Digest& digest) override;
  absl::StatusOr<ServedFile> FindFile(const Digest& digest) override;
  void ResolveForExport(uint32_t fragment, Done<ResolveOutcome> done) override;
  void CountBulkBytes(uint64_t received, uint64_t sent) override;
  void GetStatus(Done<StatusReport> done) override;
  void GetEvents(uint64_t after_sequence, absl::Duration max_wait,
                 Done<EventsOutcome> done) override;
  void ChangeSettings(SettingsChange change,
                      Done<SettingsChanged> done) override;
  void GetSettings(Done<SettingsReport> done) override;
  void Admin(Event event, std::function<void(absl::Status)> done) override;
  Fencing fencing() const override;
  const CoordinatorOptions& options() const override { return options_; }
  std::optional<FileRef> eval_shard() const override;
  std::vector<std::pair<std::string, FileRef>> tokenizer_files() const override;
  std::string NotReady() const override { return ""; }
  void Stop() override {}

  static constexpr uint64_t kRound = 3;

 private:
  class OpenedUpload;
  struct Poll {
    uint64_t known = 0;
    Done<ViewOutcome> done;
  };
  absl::Status CheckSession(const std::string& session) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<const SettingsView> InForce() const;
  ViewOutcome View() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  StatusReport Status() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  ResolveOutcome Steps() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  MetricsRegistry metrics_;
  CoordinatorOptions options_;
  mutable Mutex mu_;
  CondVar changed_;
  Fencing fencing_ ABSL_GUARDED_BY(mu_);
  std::string session_ ABSL_GUARDED_BY(mu_);
  uint64_t revision_ ABSL_GUARDED_BY(mu_) = 1;
  std::vector<Poll> polls_ ABSL_GUARDED_BY(mu_);
  absl::Duration last_max_wait_ ABSL_GUARDED_BY(mu_);
  std::map<Digest, ServedFile> files_ ABSL_GUARDED_BY(mu_);
  std::optional<uint64_t> rewind_ ABSL_GUARDED_BY(mu_);
  int busy_ ABSL_GUARDED_BY(mu_) = 0;
  UploadVerdict::Kind kind_ ABSL_GUARDED_BY(mu_) = UploadVerdict::Kind::kSend;
  std::string reason_ ABSL_GUARDED_BY(mu_);
  absl::Status begin_error_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<Upload> open_ ABSL_GUARDED_BY(mu_);
  std::string uploaded_ ABSL_GUARDED_BY(mu_);
  std::optional<UpdateValue> value_ ABSL_GUARDED_BY(mu_);
  bool accepted_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t bulk_received_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t bulk_sent_ ABSL_GUARDED_BY(mu_) = 0;
  int begins_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t last_begin_offset_ ABSL_GUARDED_BY(mu_) = 0;
  int finishes_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<JoinEvent> joined_ ABSL_GUARDED_BY(mu_);
  std::optional<WorkerProgress> progress_ ABSL_GUARDED_BY(mu_);
  std::optional<Event> admin_event_ ABSL_GUARDED_BY(mu_);
  std::string left_ ABSL_GUARDED_BY(mu_);
};

}  // namespace diloco

#endif  // TESTS_COMPONENT_SERVICE_FAKE_COORDINATOR_H_

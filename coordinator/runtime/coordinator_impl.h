// The Coordinator: wires recovery, sequencer, fold thread, uploads, watchers
// and events. Split over recovery.cc (start), coordinator_impl.cc (control
// plane), bulk.cc (uploads) and status.cc (operators).
#ifndef COORDINATOR_RUNTIME_COORDINATOR_IMPL_H_
#define COORDINATOR_RUNTIME_COORDINATOR_IMPL_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "coordinator/runtime/coordinator.h"
#include "coordinator/runtime/coordinator_metrics.h"
#include "coordinator/runtime/event_log.h"
#include "coordinator/runtime/fold_engine.h"
#include "coordinator/runtime/sequencer.h"
#include "coordinator/runtime/settings.h"
#include "coordinator/runtime/upload_table.h"
#include "coordinator/store/unknown_files.h"

namespace diloco {

class CoordinatorImpl final : public Coordinator {
 public:
  explicit CoordinatorImpl(CoordinatorOptions options);
  ~CoordinatorImpl() override;

  absl::Status Recover();

  void Join(JoinEvent event, Fencing last_seen,
            std::optional<Digest> settings_digest,
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

  Fencing fencing() const override { return fencing_; }
  const CoordinatorOptions& options() const override { return options_; }
  std::optional<FileRef> eval_shard() const override { return eval_shard_; }
  std::vector<std::pair<std::string, FileRef>> tokenizer_files()
      const override {
    return tokenizer_files_;
  }
  std::string NotReady() const override;
  void Stop() override;

 private:
  struct Watcher {
    std::string session;
    uint64_t known_revision = 0;
    Instant answer_at;
    Done<ViewOutcome> done;
  };
  struct EventsWaiter {
    uint64_t after = 0;
    Instant answer_at;
    Done<EventsOutcome> done;
  };

  // Recovery (recovery.cc).
  absl::Status LoadServedFiles();
  absl::Status CheckRun(const State& state);
  // What was edited in the run file and is to be taken over.
  absl::StatusOr<std::optional<SettingsEvent>> RecoverSettings(
      const State& state);
  absl::Status AcceptEdits(const std::optional<SettingsEvent>& edits);
  absl::Status CreateRun(Journal& journal, State& state);
  // Again and again while the disk has no room for it.
  absl::Status AsSpaceAllows(const std::function<absl::Status()>& attempt);
  absl::Status CommitStart(Journal& journal);
  // A directory with work that the journal cannot have led to has lost its end,
  // or all of it.
  absl::Status CheckNotLost(bool fresh) const;
  void LearnKnownFiles(const Fact& fact);
  absl::StatusOr<std::unique_ptr<Journal>> ReplayJournal(State& state);

  bool IsPast(const std::string& lineage) const;
  // The caller's right to speak: newer epochs and other lineages are refused,
  // then the session is looked up. On the sequencer's thread.
  absl::Status CheckFencing(const Fencing& fencing);
  // Another coordinator of this lineage is or was ahead of this one: marks the
  // directory and asks for the end of the process. The refusal of the caller.
  absl::Status Superseded(const std::string& why);
  absl::StatusOr<std::string> Caller(const std::string& session,
                                     const Fencing& fencing);
  // Posts `read` to the sequencer and waits for what it returns.
  template <typename T>
  absl::StatusOr<T> Ask(std::function<absl::StatusOr<T>()> read);
  // Submits and waits until the outcome is durable.
  std::pair<absl::Status, uint64_t> SubmitAndWait(Event event);

  // Bulk plane (bulk.cc): what the sequencer knows.
  absl::StatusOr<std::string> AskCaller(const std::string& session,
                                        const Fencing& fencing);
  absl::StatusOr<std::optional<UploadVerdict>> AskDecided(const UploadKey& key,
                                                          const Digest& digest);
  absl::StatusOr<FinishOutcome> Refuse(const UploadTable::Turn& turn,
                                       const Digest& digest,
                                       const std::string& reason);

  // On the sequencer's thread.
  void OnDurable(const std::vector<AppliedFact>& facts);
  void AfterBatch();
  // Whether the files of one more round find room: an update of each worker,
  // the blob, and images of the version, as every round may be the one with
  // images; and beside them what keep.free_space says. Asks for old images to
  // be removed when not.
  std::string NoRoom();
  // Bytes of all those files, and of those that a fold writes.
  uint64_t RoundBytes() const;
  uint64_t FoldBytes() const;
  // Asks the file system, once a second and when a fold has written.
  void ReadFreeBytes();
  // Makes the fold thread remove old images until so much is free. Any thread.
  void RequestRoom(uint64_t free_bytes);
  void StartFolds();
  ViewOutcome MakeView(const std::string& worker);
  // On the sequencer's thread.
  absl::Status CheckHeld(const BeatEvent& beat);
  void TakeProbe(const std::string& worker, ProbeEvent probe,
                 Done<uint64_t> done);
  StatusReport MakeStatus() const;
  // Whether the event of `fact`, after which the state is `state`, carries a
  // status. Of evaluations only what completes them: a status is as large as
  // there are workers.
  static bool TellsStatus(const State& state, const Fact& fact);
  // What the journal tells of a time before this start: tokens, evaluation.
  StatusReport ReplayedStatus(const State& state) const;
  // Keeps a status for GetStatus to answer while the sequencer cannot.
  void KeepStatus();
  // Lets go of what is known of workers that the state has forgotten.
  void ForgetWorkers();
  EventsOutcome MakeEvents(uint64_t after) const;
  absl::StatusOr<ResolveOutcome> ResolveNow(uint32_t fragment,
                                            std::optional<uint64_t> have);

  // Folds what closed before the end of the process before this one.
  absl::StatusOr<std::vector<VersionPublished>> FoldPending(const State& state);
  // The fold is durable: its version can be published.
  void SubmitFold(VersionPublished published);
  void FoldLoop();
  // On the fold thread, as RequestRoom.
  void MakeRoom(uint64_t free_bytes);
  void Fatal(const absl::Status& status);
  // Why updates, blobs or images wait for disk space; empty: they do not.
  std::string WriteTrouble() const;

  const CoordinatorOptions options_;
  // Constant after Recover.
  Instant started_at_;
  std::unique_ptr<FileLock> lock_;
  std::string seen_run_file_;  // Its settings at the last start.
  std::map<uint32_t, KnownFiles> known_files_;  // By fragment.
  Fencing fencing_;
  std::vector<std::string> past_lineages_;  // That this run went on from.
  std::optional<FileRef> eval_shard_;
  std::vector<std::pair<std::string, FileRef>> tokenizer_files_;
  std::map<Digest, ServedFile> served_files_;

  VersionStore versions_;
  SpoolStore spools_;
  UploadTable uploads_;
  CoordinatorMetrics metrics_;
  Settings settings_;  // On the sequencer's thread, once it runs.
  std::unique_ptr<Sequencer> sequencer_;

  // On the sequencer's thread.
  std::map<std::string, WorkerProgress> progress_;
  std::map<std::string, std::string> digest_alarms_;
  std::vector<Watcher> watchers_;
  uint64_t kept_revision_ = 0;
  Instant kept_at_;
  std::vector<EventsWaiter> event_waiters_;
  EventLog events_;
  std::vector<bool> fold_running_;
  uint64_t free_bytes_ = UINT64_MAX;
  std::optional<Instant> free_read_at_;
  std::optional<Instant> room_asked_at_;

  std::atomic<uint64_t> bulk_received_{0};
  std::atomic<uint64_t> bulk_sent_{0};
  std::atomic<bool> stopped_{false};

  mutable Mutex kept_mu_;
  std::shared_ptr<const StatusReport> kept_status_ ABSL_GUARDED_BY(kept_mu_);

  // The fold thread and its mailbox. The engine belongs to that thread once it
  // runs.
  std::unique_ptr<FoldEngine> engine_;
  std::unique_ptr<Threads::Thread> fold_thread_;
  mutable Mutex fold_mu_;
  WaitPoint fold_wake_{options_.threads};
  std::vector<Fact> to_learn_ ABSL_GUARDED_BY(fold_mu_);
  std::vector<std::pair<uint32_t, FoldOrder>> orders_ ABSL_GUARDED_BY(fold_mu_);
  bool fold_stop_ ABSL_GUARDED_BY(fold_mu_) = false;
  // Bytes that are to be free; stays until the fold thread did what it can.
  std::optional<uint64_t> room_wanted_ ABSL_GUARDED_BY(fold_mu_);
  bool disk_changed_ ABSL_GUARDED_BY(fold_mu_) = false;
  std::string fold_trouble_ ABSL_GUARDED_BY(fold_mu_);
  std::string no_room_ ABSL_GUARDED_BY(fold_mu_);
  std::atomic<bool> superseded_ = false;
};

template <typename T>
absl::StatusOr<T> CoordinatorImpl::Ask(
    std::function<absl::StatusOr<T>()> read) {
  struct Box {
    explicit Box(Threads* threads) : ready(threads) {}
    Mutex mu;
    WaitPoint ready;
    std::optional<absl::StatusOr<T>> value;
  };
  auto box = std::make_shared<Box>(options_.threads);
  sequencer_->Post([box, read](bool alive) {
    absl::StatusOr<T> value = alive ? read()
                                    : absl::StatusOr<T>(absl::UnavailableError(
                                          "the coordinator is stopping"));
    MutexLock lock(&box->mu);
    box->value = std::move(value);
    box->ready.SignalAll();
  });
  MutexLock lock(&box->mu);
  while (!box->value.has_value()) box->ready.Wait(&box->mu);
  return *std::move(box->value);
}

}  // namespace diloco

#endif  // COORDINATOR_RUNTIME_COORDINATOR_IMPL_H_

// The worker without its network and without torch: joins, pulls theta, trains
// windows, delivers updates, applies new versions, evaluates, checkpoints.
// Drives the pure session machine; the trainer stays on the calling thread.
//
//   Agent agent(options);
//   absl::Status end = agent.Run();   // until the run ends or a stop is asked
#ifndef WORKER_RUNTIME_AGENT_H_
#define WORKER_RUNTIME_AGENT_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/random_source.h"
#include "common/base/threads.h"
#include "common/config/run_settings.h"
#include "common/io/file_system.h"
#include "common/tensor/layout.h"
#include "worker/core/session_machine.h"
#include "worker/runtime/background_writer.h"
#include "worker/runtime/job.h"
#include "worker/runtime/link.h"
#include "worker/runtime/worker_metrics.h"
#include "worker/train/trainer.h"
#include "worker/transport/coordinator_port.h"
#include "worker/update/checkpoint.h"
#include "worker/update/identity.h"
#include "worker/update/residual.h"

namespace diloco {

// Where training batches come from.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Known before any run is: the coordinator compares them at join.
  virtual uint64_t tokens() const = 0;
  virtual uint32_t max_token() const = 0;
  // File, tokens, largest id and its place, for messages.
  virtual std::string Describe() const = 0;
  // Once, before the first Read. INVALID_ARGUMENT when these data are not fit
  // for the run.
  virtual absl::Status Prepare(const RunSettings& settings) = 0;
  // `cursor` counts windows drawn so far.
  virtual absl::StatusOr<Batch> Read(uint64_t cursor, int64_t windows) = 0;
};

struct AgentOptions {
  std::string worker;
  std::string run;  // Pinned run and lineage; empty: whatever is served.
  std::string lineage;
  std::string scratch;
  bool take_over = false;
  absl::Duration checkpoint_every = absl::Minutes(5);
  // How long joining may find nobody, no room, or the name held by another live
  // process, before the agent gives up.
  absl::Duration connect_timeout = absl::Minutes(2);
  // How long a worker that is to leave may take.
  absl::Duration drain_timeout = absl::Seconds(30);
  absl::Duration log_every = absl::Seconds(10);

  // Environment.
  FileSystem* fs = FileSystem::Posix();
  Clock* clock = Clock::Real();
  Threads* threads = Threads::Real();
  RandomSource random_bytes = RandomBytes;
  CoordinatorPort* port = nullptr;     // Not owned; required.
  MetricsRegistry* metrics = nullptr;  // Not owned; required.
  std::function<absl::StatusOr<std::unique_ptr<Trainer>>(const RunSettings&,
                                                         const Layout&)>
      make_trainer;
  std::function<absl::StatusOr<std::unique_ptr<BatchSource>>()> open_data;
  // Polled between steps; true writes a checkpoint now.
  std::function<bool()> checkpoint_requested = [] { return false; };
  // Polled between steps; once true, the agent hands in what is done and ends,
  // within `drain_timeout` unless a step or a write takes longer.
  std::function<bool()> stop_requested = [] { return false; };
  // Test hook: called with each version right after it was applied.
  std::function<void(uint64_t version, Trainer&)> after_apply;
};

class Agent {
 public:
  explicit Agent(AgentOptions options);
  ~Agent();

  // OK: the run ended, the worker was drained or a stop was asked. UNAVAILABLE:
  // nobody answered in time. FAILED_PRECONDITION, PERMISSION_DENIED,
  // ALREADY_EXISTS: refused, the text says why. INVALID_ARGUMENT: bad data or
  // settings. RESOURCE_EXHAUSTED: no room in the run, or on the disk. Call
  // once.
  absl::Status Run();

 private:
  struct Copy;

  // Join (join.cc).
  absl::Status OpenScratch();
  // Joins and starts the link: beats flow while the rest is prepared.
  absl::Status JoinRun();
  absl::Status PrepareTraining();
  absl::Status RestoreCheckpoint();
  // Nothing of another lineage may go into this one.
  void DropHeld();
  // As before the first pull.
  void HoldNothing();
  // Joined again in another lineage: a new trainer, as at the start.
  absl::Status StartAfresh();
  void PauseUnlessStopped(absl::Duration pause);
  // The end of every run that had joined.
  void Finish(const absl::Status& status);

  // Leaving (leave.cc).
  // Whether this worker is to leave, and with what; absent: it ends now, as
  // there is no time left or nobody to hand anything in to.
  std::optional<Leaving> LookWhetherToLeave(const std::optional<RunView>& view);
  // What is handed in, what stays on disk, and what becomes of that.
  void TellWhatIsKept() const;

  // Versions (versions.cc).
  absl::Status Pull(uint32_t fragment, uint64_t version);
  absl::Status CatchUp(uint32_t fragment, uint64_t version, bool carry);
  // `mix`: the share of the local values that the first file leaves; none is
  // left where steps are carried.
  struct Fetched {
    RemoteFile file;
    std::string path;
  };
  struct Fetching {
    absl::StatusOr<std::vector<Fetched>> files;
    absl::Duration taken;
  };
  absl::Status ApplyFiles(uint32_t fragment, const std::vector<Fetched>& files,
                          bool carry, float mix);
  absl::Status ApplyFile(uint32_t fragment, const Fetched& fetched,
                         Trainer::MergeMode mode, float mix);
  // What leads from `have` to the newest version. On any thread.
  Fetching FetchFiles(uint32_t fragment, std::optional<uint64_t> have) const;
  // This copy of a fragment is not what everybody else holds: forgets it, and
  // says so here and at the coordinator.
  void Alarm(uint32_t fragment, uint64_t version, const std::string& why);
  absl::Status EvaluateSlice(const RunView& view, uint64_t version,
                             uint32_t slice);
  absl::StatusOr<LossSum> EvaluateWindows(const RunView::Eval& eval);
  absl::StatusOr<std::string> Fetch(const Digest& digest, uint64_t bytes,
                                    const std::string& name) const;

  // The first thing after a cold start (probe.cc): timed steps that change
  // nothing, and a slice whose loss the coordinator knows. FAILED_PRECONDITION:
  // refused.
  absl::Status Probe(const RunView& view);
  absl::StatusOr<double> TimeSteps();

  // Work (agent.cc, delivery.cc).
  absl::Status Loop();
  absl::Status Perform(const Action& action, const RunView& view);
  ViewInput ToInput(const RunView& view, Leaving leaving) const;
  SyncRules Rules() const;
  // Settings that were changed in mid-run: the view's leases are under them.
  void TakeOverSettings(const RunView& view);
  // Starts the window of a lease; without `carry` from the anchor.
  absl::Status Begin(const RunView::Lease& lease, bool carry);
  absl::Status TrainStep(const RunView& view);
  // Handing in: take, encode, spool, checkpoint, upload. What does not need the
  // training thread is done by jobs, beside it where the run overlaps.
  absl::Status Submit(const RunView::Lease& lease);
  absl::Status StartSpooling(const RunView::Lease& lease);
  // Of one that was spooled before: it must still be whole.
  bool MaySendAgain(const RunView::Lease& lease);
  absl::Status StartSending(uint32_t fragment, bool with_checkpoint);
  // Takes over what jobs have done, and starts what can follow.
  absl::Status CollectJobs(const RunView& view, Leaving leaving);
  absl::Status CollectHandIn(uint32_t fragment);
  void EndJobs(Copy& copy);
  // Where jobs run; null: on the training thread.
  Threads* JobThreads() const;
  PartEncoding MakeEncoding(uint32_t fragment, uint64_t round);
  struct Sent {
    absl::StatusOr<UploadOutcome> outcome;
    absl::Duration taken;
  };
  // Sends a spooled update; gives up once a version after `guard_version` is
  // published. On any thread.
  Sent Upload(uint32_t fragment, const SpooledUpdate& spooled,
              uint64_t guard_version) const;
  absl::Status TakeOverOutcome(uint32_t fragment, const Sent& sent);
  void GiveBackRefused(uint32_t fragment);
  // The update that was under way is not any more.
  void ForgetSpooled(uint32_t fragment);
  absl::Status Settle(uint32_t fragment);
  // All fragments have a version.
  bool HoldsAll() const;
  // The fragment that is nearest to its next take.
  uint32_t FragmentAtWork() const;
  absl::Status WriteCheckpoint();
  // When one is due or was asked for.
  absl::Status SaveInBackground();
  CheckpointHeader MakeHeader() const;
  absl::StatusOr<std::vector<NamedBuffer>> ExportBuffers();
  absl::Status ImportBuffers(absl::Span<const NamedBuffer> buffers);
  void Report(const std::string& state);

  const AgentOptions options_;
  WorkerMetrics metrics_;
  std::unique_ptr<FileLock> lock_;
  CheckpointStore checkpoints_;
  std::unique_ptr<BackgroundWriter> writer_;

  // After JoinRun.
  JoinReply joined_;
  bool fresh_ = true;
  std::optional<WorkerIdentity> identity_;
  std::optional<Checkpoint> restored_;
  Layout layout_;
  std::unique_ptr<BatchSource> data_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Link> link_;

  // Of each fragment, beside what `local_` has of it.
  struct Copy {
    std::optional<Digest> digest;  // Of the anchor.
    std::optional<SpooledUpdate> spooled;
    Residual residual;
    // Under way, each absent when it is not.
    uint64_t spooling_round = 0;
    std::unique_ptr<Job<absl::StatusOr<SpooledUpdate>>> spooling;
    std::unique_ptr<Job<Sent>> sending;
    std::unique_ptr<Job<Fetching>> fetching;
    std::optional<std::vector<Fetched>> fetched;  // From the version held.
    Instant hand_in_begin;
  };
  LocalState local_;
  std::vector<Copy> copies_;
  uint64_t cursor_ = 0;
  uint64_t inner_steps_ = 0;
  uint32_t ramp_left_ = 0;
  uint32_t skipped_in_a_row_ = 0;
  Instant last_checkpoint_;
  bool checkpoint_asked_ = false;
  bool leaving_ = false;
  double hand_in_seconds_ = 0;  // From take to receipt, the last one; 0: none.
  Instant last_log_;
  ProgressReport progress_;
  std::string eval_ids_;  // The evaluation shard, and its digest.
  std::string eval_shard_digest_;
  double window_seconds_ = 0;  // Of steps after the window's first.
  uint32_t window_timed_ = 0;
  // How long training stood still since the last merge.
  absl::Duration stalled_;
  std::string last_reason_;
};

}  // namespace diloco

#endif  // WORKER_RUNTIME_AGENT_H_

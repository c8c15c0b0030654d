// The running coordinator without its network: recovery, sequencer, uploads,
// fold, evaluation, events. The gRPC services call it; tests and the in-memory
// port call it directly.
//
//   ASSIGN_OR_RETURN(auto coordinator, Coordinator::Start(std::move(options)));
//   coordinator->Watch(session, fencing, known, absl::Seconds(20), reply);
//   coordinator->Stop();
//
// Thread-safe. Calls with a `Done` return at once; the callback runs on the
// sequencer's thread after everything it tells is durable, and must not block.
// Calls marked "blocks" do disk work or wait for the sequencer: run them on an
// executor, never in a gRPC reaction.
#ifndef COORDINATOR_RUNTIME_COORDINATOR_H_
#define COORDINATOR_RUNTIME_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/fencing.h"
#include "common/base/random_source.h"
#include "common/base/threads.h"
#include "common/config/run_settings.h"
#include "common/io/file_system.h"
#include "common/metrics/metrics.h"
#include "common/tensor/layout.h"
#include "coordinator/core/machine.h"
#include "coordinator/runtime/settings.h"
#include "coordinator/store/journal.h"
#include "coordinator/store/version_store.h"

namespace diloco {

template <typename T>
using Done = std::function<void(absl::StatusOr<T>)>;

struct JoinOutcome {
  Fencing fencing;
  std::string session;
  std::shared_ptr<const SettingsView> settings;
  Digest settings_digest;
  uint64_t data_end = 0;  // Furthest that this worker's updates have reached.
};

struct ViewOutcome {
  Fencing fencing;
  uint64_t revision = 0;
  WorkerView view;
  struct Fragment {
    uint32_t fragment = 0;
    uint64_t version = 0;
    Digest digest;
    uint64_t open_round = 0;
  };
  std::vector<Fragment> fragments;
  uint64_t folded_tokens = 0;
  std::shared_ptr<const SettingsView> settings;  // Those of the leases shown.
};

// A worker's beat; totals are of its life, over all its processes.
struct WorkerProgress {
  uint64_t round = 0;
  uint32_t window_step = 0;
  uint64_t inner_steps = 0;
  uint64_t tokens = 0;
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  double step_seconds = 0;
  double train_seconds = 0;
  double transfer_seconds = 0;
  double wait_seconds = 0;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t skipped_steps = 0;
  std::string state;
  uint32_t unsent_steps = 0;  // In its window, carried ones included.
  uint64_t unsent_tokens = 0;
  uint64_t version = 0;
  std::optional<Digest> digest;
  std::optional<ProbeEvent> probe;  // Its worker is the caller.
  // The five above, for the fragments from 1 on.
  std::vector<WindowReport> others;
};

struct ResolveOutcome {
  Fencing fencing;
  uint64_t version = 0;
  std::vector<VersionStore::Step> steps;
};

struct BeginOutcome {
  UploadVerdict::Kind kind = UploadVerdict::Kind::kSend;
  bool queued = false;  // Too many uploads at once: ask again.
  uint64_t offset = 0;
  uint64_t sequence = 0;  // Of the receipt when accepted.
  std::string reason;
};

struct FinishOutcome {
  UploadVerdict::Kind kind = UploadVerdict::Kind::kAccepted;
  uint64_t sequence = 0;
  std::string reason;
};

struct WorkerReport {
  std::string name;
  std::string membership;  // active, suspect, lost, left, refused, evicted.
  std::string refusal;
  bool draining = false;
  std::string peer;
  absl::Duration since_heard;
  uint64_t rounds_folded = 0;
  uint64_t tokens_folded = 0;
  WorkerProgress progress;
  bool leased = false;
  bool delivered = false;
};

struct StatusReport {
  Fencing fencing;
  std::string run;
  RunPhase phase = RunPhase::kWaiting;
  std::string phase_reason;
  uint64_t folded_tokens = 0;
  uint64_t train_tokens = 0;
  uint64_t batch_tokens = 0;
  int64_t parameters = 0;
  struct Fragment {
    uint64_t open_round = 0;
    uint64_t version = 0;
    Digest digest;
    absl::Duration open_for;
    absl::Duration deadline;
    uint32_t leased = 0;
    uint32_t delivered = 0;
    bool folding = false;
    std::string opened_because;
    std::vector<std::string> late;  // With leases that are not waited for.
  };
  std::vector<Fragment> fragments;
  std::vector<WorkerReport> workers;
  std::optional<EvalResult> eval;
  double bytes_per_token = 0;  // Of the evaluation shard; 0: unknown.
  uint64_t bulk_bytes_received = 0;
  uint64_t bulk_bytes_sent = 0;
  absl::Duration uptime;
  uint64_t last_sequence = 0;
  std::string not_ready;  // Empty: ready.
  Digest settings_digest;
  uint64_t settings_revision = 0;  // 0: as the run was created.
};

// Values for keys, or the start of the decay.
struct SettingsChange {
  SettingValues values;
  uint64_t decay_tokens = 0;  // 0: none.
  std::string by;
  std::string reason;
};

struct SettingsReport {
  Fencing fencing;
  uint64_t revision = 0;
  SettingValues in_force;
  SettingValues accepted;  // From the next round on.
};

struct EventReport {
  uint64_t sequence = 0;
  std::optional<absl::Time> wall_time;  // Absent: before this start.
  Fact fact;
  // After versions and evaluations. Before this start: what the journal tells.
  std::optional<StatusReport> status;
};

struct EventsOutcome {
  Fencing fencing;
  std::vector<EventReport> events;
  uint64_t oldest_sequence = 0;
};

struct ServedFile {
  std::string path;
  uint64_t bytes = 0;
};

// A file that was resolved or read stays so long for its reader, whose
// connection may have broken.
inline constexpr absl::Duration kReaderPin = absl::Minutes(10);

struct CoordinatorOptions {
  // Behaviour.
  std::string run;
  Policy policy;
  RunSettings settings;
  Digest settings_digest;
  std::string settings_text;  // What the digest is of.
  SettingsSource changes;     // How all of the above may change.
  bool accept_edits = false;  // Take over what was edited in the run file.
  Layout layout;
  std::string state_dir;
  uint64_t image_every = 8;  // Versions between images.
  int keep_images = 5;
  uint64_t keep_every = 50;  // Versions whose images stay, too; 0: none.
  // With less left on the disk no round opens, and older images go first, those
  // of keep_every last.
  uint64_t keep_free_bytes = 0;
  uint64_t journal_segment_bytes = Journal::kSegmentBytes;
  int max_parallel_uploads = 8;
  // Fills theta(0); called once, for a new state directory.
  std::function<absl::Status(absl::Span<float>)> initial_theta;
  // Evaluation shard (uint16 ids), empty: no evaluation.
  std::string eval_shard;
  double bytes_per_token = 0;
  // Files that exports carry, e.g. the tokenizer's: name, path.
  std::vector<std::pair<std::string, std::string>> tokenizer_files;
  std::string model_json;  // Hugging Face config.json for exports.

  // Environment.
  FileSystem* fs = FileSystem::Posix();
  Clock* clock = Clock::Real();
  Threads* threads = Threads::Real();
  RandomSource random_bytes = RandomBytes;
  MetricsRegistry* metrics = nullptr;  // Not owned; required.
  // Told when the process must not go on; does not return, except in tests.
  // Default: exit at once, without destructors.
  std::function<void(const absl::Status&)> on_fatal;
  // Called again and again while a start waits for disk space, with what is
  // full; returns after a while, false to give up. Null: it gives up at once.
  std::function<bool(const std::string& why)> wait_for_space;
  // Told once, on any thread, when a caller knows of a later coordinator of the
  // same lineage. The state directory is marked by then; the process must end.
  std::function<void()> on_superseded;
};

class Coordinator {
 public:
  // Takes the lock, recovers or creates the run, journals the new epoch and
  // starts the sequencer. Errors name file and cause.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(
      CoordinatorOptions options);
  virtual ~Coordinator() = default;

  // Control plane. `fencing` is what the caller believes; a newer epoch or
  // another lineage than ours is FAILED_PRECONDITION. The former ends this
  // coordinator (on_superseded): two of one state directory are alive.
  virtual void Join(JoinEvent event, Fencing last_seen,
                    std::optional<Digest> settings_digest,
                    Done<JoinOutcome> done) = 0;
  virtual void Watch(std::string session, Fencing fencing,
                     uint64_t known_revision, absl::Duration max_wait,
                     Done<ViewOutcome> done) = 0;
  virtual void Beat(std::string session, Fencing fencing,
                    WorkerProgress progress, Done<uint64_t> done) = 0;
  virtual void Resolve(std::string session, Fencing fencing, uint32_t fragment,
                       std::optional<uint64_t> have,
                       Done<ResolveOutcome> done) = 0;
  virtual void ReportEval(std::string session, Fencing fencing,
                          EvalReportEvent report,
                          std::function<void(absl::Status)> done) = 0;
  virtual void Leave(std::string session, Fencing fencing, std::string reason,
                     std::function<void(absl::Status)> done) = 0;

  // Bulk plane; all block.
  virtual absl::StatusOr<BeginOutcome> BeginUpload(
      const std::string& session, const Fencing& fencing, uint32_t fragment,
      uint64_t round, const UpdateValue& value) = 0;
  // The worker's open upload under the key; refers to it in Write calls.
  class Upload {
   public:
    virtual ~Upload() = default;
    virtual uint64_t offset() const = 0;
    // As UploadSpool::Write, but UNAVAILABLE when the file failed, and
    // CANCELLED once the round does not want it or the worker began another:
    // begin again.
    virtual absl::Status Write(uint64_t offset, absl::string_view bytes) = 0;
  };
  virtual absl::StatusOr<std::shared_ptr<Upload>> OpenUpload(
      const std::string& session, const Fencing& fencing, uint32_t fragment,
      uint64_t round) = 0;
  // After success every repeat gets the stored receipt.
  virtual absl::StatusOr<FinishOutcome> FinishUpload(const std::string& session,
                                                     const Fencing& fencing,
                                                     uint32_t fragment,
                                                     uint64_t round,
                                                     const Digest& digest) = 0;
  // A file by digest: images, blobs, evaluation shard, tokenizer.
  virtual absl::StatusOr<ServedFile> FindFile(const Digest& digest) = 0;
  // What leads from nothing to the newest version, for exports.
  virtual void ResolveForExport(uint32_t fragment,
                                Done<ResolveOutcome> done) = 0;
  // For the bulk counters.
  virtual void CountBulkBytes(uint64_t received, uint64_t sent) = 0;

  // Operators.
  virtual void GetStatus(Done<StatusReport> done) = 0;
  virtual void GetEvents(uint64_t after_sequence, absl::Duration max_wait,
                         Done<EventsOutcome> done) = 0;
  // NOT_FOUND, INVALID_ARGUMENT, FAILED_PRECONDITION: not this key, value or
  // now. ALREADY_EXISTS: it has that value.
  virtual void ChangeSettings(SettingsChange change,
                              Done<SettingsChanged> done) = 0;
  virtual void GetSettings(Done<SettingsReport> done) = 0;
  // PauseEvent, StopEvent, DrainEvent or EvictEvent.
  virtual void Admin(Event event, std::function<void(absl::Status)> done) = 0;

  virtual Fencing fencing() const = 0;
  virtual const CoordinatorOptions& options() const = 0;
  // Evaluation shard and tokenizer files by digest.
  virtual std::optional<FileRef> eval_shard() const = 0;
  virtual std::vector<std::pair<std::string, FileRef>> tokenizer_files()
      const = 0;
  // Empty when ready, else why not (for /readyz).
  virtual std::string NotReady() const = 0;

  // Finishes what runs, syncs the journal, ends the threads. Pending calls get
  // UNAVAILABLE. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace diloco

#endif  // COORDINATOR_RUNTIME_COORDINATOR_H_

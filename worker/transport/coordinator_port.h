// What a worker can ask of its coordinator. The gRPC implementation lies beside
// this file; tests use one in memory. Calls block and are made from several
// threads of the agent (watch, beat, main): implementations are thread-safe.
//
// Codes, by what the caller does: UNAVAILABLE / DEADLINE_EXCEEDED try again;
// FAILED_PRECONDITION watch again or, from Join, give up (the text names both
// sides); PERMISSION_DENIED the session was superseded: stop; ALREADY_EXISTS a
// conflict: stop and report; RESOURCE_EXHAUSTED back off; CANCELLED as asked.
#ifndef WORKER_TRANSPORT_COORDINATOR_PORT_H_
#define WORKER_TRANSPORT_COORDINATOR_PORT_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/fencing.h"
#include "common/config/run_settings.h"
#include "common/io/digest.h"
#include "common/io/file_system.h"
#include "common/tensor/codec.h"

namespace diloco {

struct JoinCall {
  std::string run;
  std::string worker;
  std::string attempt;
  std::string previous_session;
  Fencing last_seen;
  std::optional<Digest> settings_digest;
  bool fresh = false;
  bool take_over = false;
  uint64_t data_tokens = 0;
  uint32_t max_token = 0;
};

struct JoinReply {
  Fencing fencing;
  std::string session;
  RunSettings settings;
  Digest settings_digest;
  absl::Duration lease;
  absl::Duration beat_every;
  uint64_t settings_revision = 0;
  uint64_t data_end = 0;  // Furthest that an update of this name has reached.
};

struct RunView {
  enum class Phase { kWaiting, kRunning, kPaused, kFinished };
  struct Fragment {
    uint32_t fragment = 0;
    uint64_t version = 0;
    Digest digest;
    uint64_t open_round = 0;
  };
  struct Lease {
    uint32_t fragment = 0;
    uint64_t round = 0;
    uint64_t base_version = 0;
    Digest base_digest;
    uint32_t steps = 0;
    double progress = 0;
    double progress_step = 0;
    absl::Duration deadline_left;
    bool delivered = false;
    uint32_t window_steps = 0;  // The window is full with these; 0: no limit.
    // No round of the fragment is expected to follow: merge without overlap,
    // and keep nothing of the local value.
    bool last = false;
    uint64_t due_step = 0;  // On the run's axis of steps.
    uint32_t round_steps = 0;
  };
  struct Eval {
    uint64_t version = 0;
    uint32_t slice = 0;
    Digest shard_digest;
    uint64_t shard_bytes = 0;
    uint64_t first_window = 0;
    uint64_t windows = 0;
    // Of theta, by fragment; empty: there is one fragment, of `version`.
    std::vector<uint64_t> versions = {};
  };
  Fencing fencing;
  uint64_t revision = 0;
  Phase phase = Phase::kWaiting;
  std::vector<Fragment> fragments;
  std::vector<Lease> leases;
  std::vector<Eval> evals;
  std::optional<Eval> probe;  // A slice whose loss the coordinator knows.
  bool drain = false;
  std::string notice;
  uint64_t folded_tokens = 0;
  // In force for the leases: differ from those of Join once they were changed.
  uint64_t settings_revision = 0;
  RunSettings settings;
};

// Soft state that a beat carries. Totals are of the worker's life, as far as
// its checkpoint knows it.
struct ProgressReport {
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
  // Of the processes before this one; the port adds its own.
  uint64_t earlier_bytes_sent = 0;
  uint64_t earlier_bytes_received = 0;
  uint64_t skipped_steps = 0;
  std::string state;
  uint32_t unsent_steps = 0;  // In the window, carried ones included.
  uint64_t unsent_tokens = 0;
  uint64_t version = 0;
  std::optional<Digest> digest;  // Of the copy held, from its memory.
  // What a cold start found, until it is answered. FAILED_PRECONDITION:
  // refused.
  struct Probe {
    uint64_t version = 0;
    uint64_t first_window = 0;
    uint64_t windows = 0;
    double loss_sum = 0;
    uint64_t tokens = 0;  // 0: there was no slice to evaluate.
  };
  std::optional<Probe> probe;
  // round, window_step, unsent_*, version and digest of the fragments from 1
  // on.
  struct FragmentProgress {
    uint32_t fragment = 0;
    uint64_t round = 0;
    uint32_t window_step = 0;
    uint32_t unsent_steps = 0;
    uint64_t unsent_tokens = 0;
    uint64_t version = 0;
    std::optional<Digest> digest;
  };
  std::vector<FragmentProgress> others;
};

struct RemoteFile {
  bool image = false;  // Whole fragment; otherwise the change to `version`.
  uint64_t version = 0;
  uint64_t bytes = 0;
  Digest digest;
  Digest result_digest;
};

struct UpdateOffer {
  uint32_t fragment = 0;
  uint64_t round = 0;
  uint64_t base_version = 0;
  Digest base_digest;
  uint64_t bytes = 0;
  Digest digest;
  Codec codec = Codec::kFp16;
  uint64_t tokens = 0;
  uint32_t steps = 0;
  double loss = 0;
  double lr_sum = 0;      // Inner learning rates of its steps.
  uint64_t data_end = 0;  // Tokens drawn from the worker's data with the last.
};

struct UploadOutcome {
  enum class Kind { kAccepted, kLate, kRefused };
  Kind kind = Kind::kAccepted;
  std::string reason;
};

// Set by another thread to end a transfer early (CANCELLED).
using CancelFlag = std::atomic<bool>;

class CoordinatorPort {
 public:
  virtual ~CoordinatorPort() = default;

  // A success makes later calls carry the new session and fencing.
  virtual absl::StatusOr<JoinReply> Join(const JoinCall& call) = 0;
  virtual absl::StatusOr<RunView> Watch(uint64_t known_revision,
                                        absl::Duration max_wait) = 0;
  // The coordinator's revision.
  virtual absl::StatusOr<uint64_t> Report(const ProgressReport& report) = 0;
  virtual absl::StatusOr<std::vector<RemoteFile>> Resolve(
      uint32_t fragment, std::optional<uint64_t> have_version) = 0;
  virtual absl::Status ReportEval(uint64_t version, uint32_t slice,
                                  double loss_sum, uint64_t tokens) = 0;
  virtual absl::Status Leave(const std::string& reason) = 0;

  // The whole exchange: begin, resume, chunks, finish, polling. Reconnects and
  // goes on by itself while the coordinator is away; ends with an outcome, a
  // permanent error or CANCELLED.
  virtual absl::StatusOr<UploadOutcome> Upload(const UpdateOffer& offer,
                                               const ReadableFile& file,
                                               const CancelFlag& cancel) = 0;
  // Fetches into `file` from its durable beginning, resuming what is there,
  // verifies every block and the digest. DATA_LOSS when the digest differs
  // after a second try.
  virtual absl::Status Download(const Digest& digest, uint64_t bytes,
                                const std::string& path,
                                const CancelFlag& cancel) = 0;

  // Ends calls in flight and all later ones with CANCELLED.
  virtual void Shutdown() = 0;

  // Bytes on the wire in this process, both ways, framing included.
  struct Traffic {
    uint64_t sent = 0;
    uint64_t received = 0;
  };
  virtual Traffic traffic() const = 0;
};

}  // namespace diloco

#endif  // WORKER_TRANSPORT_COORDINATOR_PORT_H_

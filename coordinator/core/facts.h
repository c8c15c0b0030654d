// What the journal records: everything that was decided, and nothing that can
// be derived. Recovery evolves these; it never decides again. Durations may
// appear, instants never. coordinator/store/fact_codec maps them to
// proto/diloco/v1/journal.proto.
#ifndef COORDINATOR_CORE_FACTS_H_
#define COORDINATOR_CORE_FACTS_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/io/digest.h"
#include "common/tensor/codec.h"
#include "coordinator/core/merge_rule.h"

namespace diloco {

// The values an update's key (run, worker, fragment, round) stands for.
struct UpdateValue {
  uint64_t base_version = 0;
  Digest base_digest;
  uint64_t bytes = 0;
  Digest digest;
  Codec codec = Codec::kFp16;
  uint64_t tokens = 0;
  uint32_t steps = 0;
  double loss = 0;    // Mean of the window, nats per token.
  double lr_sum = 0;  // Inner learning rates of its steps; 0: not told.
  // Where its last step left off in the worker's data, in tokens since the
  // first that it ever drew: the update is of the `tokens` before. 0: not told.
  uint64_t data_end = 0;

  friend bool operator==(const UpdateValue&, const UpdateValue&) = default;
};

// What a worker may do in a round: `tokens` bounds its weight.
struct Lease {
  std::string worker;
  uint32_t steps = 0;
  uint64_t tokens = 0;          // Those of its steps and the carried ones.
  uint64_t carried_tokens = 0;  // Part of `tokens`, from rounds it missed.
  double progress = 0;          // Of the run when the window starts, 0 to 1.
  double progress_step = 0;     // Added per inner step.
  // The window ends with so many steps, those carried into it included, also
  // when `steps` are not done; 0: only `steps` count.
  uint32_t window_steps = 0;

  friend bool operator==(const Lease&, const Lease&) = default;
};

struct FileRef {
  Digest digest;
  uint64_t bytes = 0;

  friend bool operator==(const FileRef&, const FileRef&) = default;
};

// First record of a state directory.
struct RunCreated {
  std::string run;
  std::string lineage;  // 16 bytes.
  Digest settings_digest;
  Digest layout_digest;
  struct Fragment {
    Digest digest;  // Of version 0.
    FileRef theta_image;
    FileRef momentum_image;
    // So that every fold can be done again from the state directory alone.
    std::vector<MergeTensor> tensors = {};
    friend bool operator==(const Fragment&, const Fragment&) = default;
  };
  std::vector<Fragment> fragments;
  friend bool operator==(const RunCreated&, const RunCreated&) = default;
};

// Each start of the coordinator, before it serves.
struct EpochStarted {
  uint64_t epoch = 0;
  std::string boot_nonce;  // 8 bytes.
  friend bool operator==(const EpochStarted&, const EpochStarted&) = default;
};

struct WorkerJoined {
  std::string worker;
  std::string session;  // 16 bytes.
  std::string attempt;  // 16 bytes, names the Join call.
  bool fresh = false;   // Its window and optimiser state are gone.
  std::string peer;
  // The token it presented, empty for none; Join takes it once more should the
  // reply get lost.
  std::string previous_session;
  friend bool operator==(const WorkerJoined&, const WorkerJoined&) = default;
};

// A lost worker was heard of again under its valid session.
struct WorkerReturned {
  std::string worker;
  friend bool operator==(const WorkerReturned&,
                         const WorkerReturned&) = default;
};

// kRefused: its probe found another loss than the run has; it may join again.
enum class Departure { kLeft = 1, kLost = 2, kEvicted = 3, kRefused = 4 };

struct WorkerDeparted {
  std::string worker;
  Departure departure = Departure::kLeft;
  std::string reason;
  friend bool operator==(const WorkerDeparted&,
                         const WorkerDeparted&) = default;
};

struct DrainRequested {
  std::string worker;
  friend bool operator==(const DrainRequested&,
                         const DrainRequested&) = default;
};

struct RoundOpened {
  uint32_t fragment = 0;
  uint64_t round = 0;
  uint64_t base_version = 0;
  std::vector<Lease> leases;  // In worker-name order.
  struct Skipped {
    std::string worker;
    std::string reason;
    friend bool operator==(const Skipped&, const Skipped&) = default;
  };
  std::vector<Skipped> skipped;
  absl::Duration deadline;  // From opening, or from a restart.
  std::string reason;
  friend bool operator==(const RoundOpened&, const RoundOpened&) = default;
};

// A deadline passed with fewer than min_updates, or nobody with a lease is
// left: wait on, with leases for those who had none.
struct RoundExtended {
  uint32_t fragment = 0;
  uint64_t round = 0;
  std::vector<Lease> added;
  std::string reason;
  friend bool operator==(const RoundExtended&, const RoundExtended&) = default;
};

// A worker that the round was opened without takes part after all. The round
// does not wait for it: what it has not delivered by the close it carries on.
struct LeaseAdded {
  uint32_t fragment = 0;
  uint64_t round = 0;
  Lease lease;
  std::string reason;
  friend bool operator==(const LeaseAdded&, const LeaseAdded&) = default;
};

// The update is verified and fsynced in its spool; its receipt may go out.
struct UpdateCommitted {
  uint32_t fragment = 0;
  uint64_t round = 0;
  std::string worker;
  UpdateValue value;
  float max_abs = 0;
  double norm = 0;
  friend bool operator==(const UpdateCommitted&,
                         const UpdateCommitted&) = default;
};

// What an update was refused by (screen.h). On disk: never renumber.
enum class Screen : uint32_t {
  kContent = 0,  // Of its own bytes, on arrival.
  kReplay = 1,
  kNorm = 2,
};
inline constexpr Screen kScreens[] = {Screen::kContent, Screen::kReplay,
                                      Screen::kNorm};
constexpr const char* ScreenName(Screen screen) {
  switch (screen) {
    case Screen::kContent:
      return "content";
    case Screen::kReplay:
      return "replay";
    case Screen::kNorm:
      return "norm";
  }
  return "unknown";
}

// The update was complete but unusable; its key is used up. By kNorm also one
// that was committed: it does not count any more.
struct UpdateRefused {
  uint32_t fragment = 0;
  uint64_t round = 0;
  std::string worker;
  Digest digest;
  std::string reason;
  Screen screen = Screen::kContent;
  // kNorm: norm over the summed learning rate, and the most that would pass.
  double figure = 0;
  double limit = 0;
  friend bool operator==(const UpdateRefused&, const UpdateRefused&) = default;
};

struct RoundMember {
  std::string worker;
  uint64_t weight = 0;  // Tokens, clamped to the lease (or 1 when uniform).
  Digest digest;
  uint64_t tokens = 0;
  double norm_per_lr = 0;  // NormPerLr of screen.h; 0: not recorded.
  friend bool operator==(const RoundMember&, const RoundMember&) = default;
};

// Fold these, in this order (worker name). No member: the round is void, no
// version follows and theta stays.
struct RoundClosed {
  uint32_t fragment = 0;
  uint64_t round = 0;
  std::vector<RoundMember> members;
  std::vector<std::string> missing;  // Waited for, not in the fold.
  double loss = 0;                   // Token-weighted mean of the members.
  absl::Duration duration;           // Since opening or restart.
  double outer_lr = 0;
  double outer_momentum = 0;
  bool nesterov = true;
  std::string reason;
  MergeRule merge = MergeRule::kMean;
  friend bool operator==(const RoundClosed&, const RoundClosed&) = default;
};

struct VersionPublished {
  uint32_t fragment = 0;
  uint64_t round = 0;
  uint64_t version = 0;
  Digest digest;  // Of the fp32 fragment.
  FileRef blob;   // The encoded change from version - 1.
  // Set (bytes > 0) when the fold wrote an image of this version.
  FileRef theta_image;
  FileRef momentum_image;
  uint64_t folded_tokens = 0;  // Of the run, all rounds so far.
  friend bool operator==(const VersionPublished&,
                         const VersionPublished&) = default;
};

// `version` numbers the copies of theta: ThetaVersion (state.h).
struct EvalOpened {
  uint64_t version = 0;
  std::vector<uint64_t> versions;  // By fragment; empty when there is one.
  struct Slice {
    std::string worker;
    uint64_t first_window = 0;
    uint64_t windows = 0;
    friend bool operator==(const Slice&, const Slice&) = default;
  };
  std::vector<Slice> slices;
  friend bool operator==(const EvalOpened&, const EvalOpened&) = default;
};

struct EvalReassigned {
  uint64_t version = 0;
  uint32_t slice = 0;
  std::string worker;
  std::string reason;
  friend bool operator==(const EvalReassigned&,
                         const EvalReassigned&) = default;
};

struct EvalReported {
  uint64_t version = 0;
  uint32_t slice = 0;
  std::string worker;
  double loss_sum = 0;
  uint64_t tokens = 0;
  friend bool operator==(const EvalReported&, const EvalReported&) = default;
};

// An evaluation that can no longer complete (nobody holds that version).
struct EvalAbandoned {
  uint64_t version = 0;
  std::string reason;
  friend bool operator==(const EvalAbandoned&, const EvalAbandoned&) = default;
};

struct PauseChanged {
  bool paused = false;
  std::string reason;
  bool guard = false;  // The guard's alarm.
  friend bool operator==(const PauseChanged&, const PauseChanged&) = default;
};

// No round opens after this one.
struct StopRequested {
  uint64_t after_round = 0;
  std::string reason;
  friend bool operator==(const StopRequested&, const StopRequested&) = default;
};

// Keys of the run file got other values, in their canonical spelling.
struct SettingsChanged {
  struct Change {
    std::string key;
    std::string before;
    std::string after;
    // It judges what comes next, also in an open round. Otherwise it waits for
    // that round to close: a round keeps the settings that it opened under.
    bool at_once = false;
    friend bool operator==(const Change&, const Change&) = default;
  };
  uint64_t revision = 0;  // Grows by one with each.
  std::vector<Change> changes;
  uint64_t from_round = 0;  // The first that opens under all of it.
  bool reopens = false;     // The run had finished and goes on.
  Digest settings_digest;   // Of all settings after it.
  std::string by;
  std::string reason;
  friend bool operator==(const SettingsChanged&,
                         const SettingsChanged&) = default;
};

struct RunFinished {
  std::string reason;
  friend bool operator==(const RunFinished&, const RunFinished&) = default;
};

// The run goes on from these versions under another identity, after a rollback
// or from a backup: what came later does not count, the open round is dropped,
// and every worker starts afresh. Written by dilococtl, never decided.
struct LineageStarted {
  std::string lineage;  // 16 bytes.
  struct Fragment {
    uint64_t version = 0;
    Digest digest;
    FileRef theta_image;
    FileRef momentum_image;
    uint64_t folded_tokens = 0;  // Into this fragment; unused when it is alone.
    friend bool operator==(const Fragment&, const Fragment&) = default;
  };
  std::vector<Fragment> fragments;
  uint64_t folded_tokens = 0;  // Of the run.
  std::string reason;
  friend bool operator==(const LineageStarted&,
                         const LineageStarted&) = default;
};

using Fact =
    std::variant<RunCreated, EpochStarted, WorkerJoined, WorkerReturned,
                 WorkerDeparted, DrainRequested, RoundOpened, RoundExtended,
                 UpdateCommitted, UpdateRefused, RoundClosed, VersionPublished,
                 EvalOpened, EvalReassigned, EvalReported, EvalAbandoned,
                 PauseChanged, StopRequested, RunFinished, LineageStarted,
                 SettingsChanged, LeaseAdded>;

}  // namespace diloco

#endif  // COORDINATOR_CORE_FACTS_H_

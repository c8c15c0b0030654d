// The deciding code: pure functions of state, event and time. No I/O, no
// threads, no randomness; ids come in with the event. The sequencer in
// coordinator/runtime is the only caller in the daemon.
//
//   Decision d = Decide(policy, state, soft, event, now);
//   journal d.facts, Evolve(state, fact) each; EvolveSoft(soft, event, d, now);
//   answer d.status once the facts are durable.
//
// After Join the worker's session is state.workers.at(name).session (a repeat
// of an attempt gets the session it got before).
#ifndef COORDINATOR_CORE_MACHINE_H_
#define COORDINATOR_CORE_MACHINE_H_

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/config/run_settings.h"
#include "coordinator/core/facts.h"
#include "coordinator/core/outer_schedule.h"
#include "coordinator/core/state.h"

namespace diloco {

enum class ShortRound { kExtend, kFold, kVoid };
enum class Weighting { kTokens, kUniform };

// What of the settings in force the decisions depend on.
struct Policy {
  uint64_t train_tokens = 0;
  uint64_t batch_tokens = 0;
  uint32_t interval = 0;        // H.
  uint32_t interval_first = 0;  // H of the first `rounds_first` rounds.
  uint32_t rounds_first = 0;
  uint32_t min_updates = 1;
  ShortRound short_round = ShortRound::kExtend;
  LatePolicy late = LatePolicy::kCarry;
  Weighting weighting = Weighting::kTokens;
  // Fixed deadline; absent is `auto` (eligibility.h).
  std::optional<absl::Duration> deadline;
  // Updates that close a round before its deadline: so many, or this share of
  // those it waits for; neither: all of them. Then it waits for others for so
  // long, and for this share of the time that the quorum took.
  uint32_t quorum = 0;
  double quorum_share = 0;
  absl::Duration grace;
  double grace_share = 0;
  // A slower worker makes fewer steps, so that all finish together.
  bool steps_by_speed = false;
  uint32_t wait_for = 1;  // Workers that must join before round 1.
  uint32_t max_workers = 256;
  absl::Duration suspect_after = absl::Seconds(5);
  absl::Duration lease = absl::Seconds(30);
  double outer_lr = 0.7;
  double outer_momentum = 0.9;
  bool nesterov = true;
  OuterSchedule outer_schedule;
  MergeRule merge = MergeRule::kMean;
  bool exact = true;       // Workers train on only once they have a result.
  double inner_lr = 4e-4;  // At its peak.
  // Screens (screen.h).
  double screen_norm = 0;  // Times the median; 0: none.
  bool screen_replay = false;
  Codec codec_up = Codec::kFp16;
  uint32_t eval_every = 0;    // Versions; 0: never.
  uint64_t eval_windows = 0;  // Per evaluation, over all slices.
  // Alarms that pause the run; 0: none.
  double guard_eval_rise = 0;  // Nats per token above the lowest so far.
  double guard_norm_jump = 0;  // Times the median norm of updates before.
};

struct JoinEvent {
  std::string worker;
  std::string attempt;
  std::string previous_session;
  std::string new_session;  // Random, drawn by the runtime.
  bool fresh = false;
  bool take_over = false;
  std::string peer;
};
// The worker was heard of; `step_seconds` 0 when it has none to report.
struct BeatEvent {
  std::string worker;
  double step_seconds = 0;
  std::optional<WindowReport> window = std::nullopt;  // Of fragment 0.
  std::vector<WindowReport> others = {};              // Of the other fragments.
};
// What a worker that starts cold found of the version that it holds; no tokens:
// it found nothing to compare with. One that is refused has left, and its
// `refusal` says why.
struct ProbeEvent {
  std::string worker;
  uint64_t version = 0;
  uint64_t first_window = 0;
  uint64_t windows = 0;
  double loss_sum = 0;
  uint64_t tokens = 0;
};
// `value` was verified and fsynced in its spool.
struct UpdateVerifiedEvent {
  std::string worker;
  uint32_t fragment = 0;
  uint64_t round = 0;
  UpdateValue value;
  float max_abs = 0;
  double norm = 0;
  double upload_seconds = 0;  // From first byte to Finish; 0: not known.
};
struct UpdateUnusableEvent {
  std::string worker;
  uint32_t fragment = 0;
  uint64_t round = 0;
  Digest digest;
  std::string reason;
};
struct FoldDoneEvent {
  VersionPublished published;
};
struct EvalReportEvent {
  std::string worker;
  uint64_t version = 0;
  uint32_t slice = 0;
  double loss_sum = 0;
  uint64_t tokens = 0;
};
struct LeaveEvent {
  std::string worker;
  std::string reason;
};
struct PauseEvent {
  bool paused = true;
  std::string reason;
};
struct StopEvent {
  std::optional<uint64_t> after_round;  // Absent: the open or last one.
  std::string reason;
};
struct DrainEvent {
  std::string worker;
};
struct EvictEvent {
  std::string worker;
  std::string reason;
};
// `changes` hold against the settings of `base_revision`; the caller has
// checked the values. `train_tokens` is what follows from them.
struct SettingsEvent {
  uint64_t base_revision = 0;
  std::vector<SettingsChanged::Change> changes;
  uint64_t train_tokens = 0;
  Digest settings_digest;
  std::string by;
  std::string reason;
};
// The fact that the event becomes.
SettingsChanged ToFact(const SettingsEvent& event, const State& state);
// Time passed. Every decision also does what has become due (rounds that close
// or open, lost workers, evaluations), so a tick once a second is enough.
struct TickEvent {
  // Why the disk has no room for another round, in words; empty: it has.
  std::string no_room;
};

using Event =
    std::variant<JoinEvent, BeatEvent, ProbeEvent, UpdateVerifiedEvent,
                 UpdateUnusableEvent, FoldDoneEvent, EvalReportEvent,
                 LeaveEvent, PauseEvent, StopEvent, DrainEvent, EvictEvent,
                 SettingsEvent, TickEvent>;

struct Decision {
  absl::Status status;  // What the caller is told; facts only when OK.
  std::vector<Fact> facts;
  std::string reason;  // In words, for the log; may be empty.
};

// Facts of one decision may be cut anywhere by a crash: what is then missing
// becomes due again and a later decision catches up. `policy` is that of
// state.settings.in_force; where the decision itself changes those, it ends
// there, and what is due then waits for the next one, under the new policy.
Decision Decide(const Policy& policy, const State& state, const Soft& soft,
                const Event& event, Instant now);

// What `decision` on `event` means for instants and rates; a refused one means
// nothing. Call after each Decide with the same `now`.
void EvolveSoft(Soft& soft, const Event& event, const Decision& decision,
                Instant now);

// What an upload's key and value are worth right now (BeginUpload and each
// later call). kRefused: the key is used up by an unusable update. kLate: the
// round closed without it.
struct UploadVerdict {
  enum class Kind { kSend, kAccepted, kLate, kRefused };
  Kind kind = Kind::kSend;
  std::string reason;
  std::optional<StoredUpdate> committed;
};
// ALREADY_EXISTS: same key, other values. INVALID_ARGUMENT: wrong base, codec,
// size, a round of the future, no tokens. FAILED_PRECONDITION: no lease in that
// round. PERMISSION_DENIED: evicted. `expected_bytes` is the size of a full
// update.
absl::StatusOr<UploadVerdict> JudgeUpload(const Policy& policy,
                                          const State& state,
                                          const std::string& worker,
                                          uint32_t fragment, uint64_t round,
                                          const UpdateValue& value,
                                          uint64_t expected_bytes);

// What is decided already about a key, for a call that comes again: kAccepted
// or kRefused; absent: nothing. ALREADY_EXISTS: an update with another digest
// was accepted.
absl::StatusOr<std::optional<UploadVerdict>> DecidedUpload(
    const State& state, const std::string& worker, uint32_t fragment,
    uint64_t round, const Digest& digest);

// The worker that holds this session, or why not: UNAUTHENTICATED (unknown),
// PERMISSION_DENIED (superseded by a newer process; evicted). The session of a
// worker that left is still known, so that Leave can be repeated.
absl::StatusOr<std::string> WorkerOfSession(const State& state,
                                            const std::string& session);

// The fold that must run now, if any: re-derived after a restart.
struct FoldOrder {
  RoundClosed closed;
  uint64_t base_version = 0;
};
std::optional<FoldOrder> PendingFold(const State& state, uint32_t fragment);

// What one worker is shown.
struct LeaseView {
  uint32_t fragment = 0;
  uint64_t round = 0;
  uint64_t base_version = 0;
  Digest base_digest;
  Lease lease;
  absl::Duration deadline_left;
  bool delivered = false;
  bool last = false;         // No round of the fragment is expected to follow.
  uint64_t due_step = 0;     // On the run's axis of steps.
  uint32_t round_steps = 0;  // Of a whole window.
};
struct EvalView {
  uint64_t version = 0;
  uint32_t slice = 0;
  uint64_t first_window = 0;
  uint64_t windows = 0;
  std::vector<uint64_t> versions = {};  // By fragment; empty: there is one.
};
enum class RunPhase { kWaiting, kRunning, kPaused, kFinished };
struct WorkerView {
  RunPhase phase = RunPhase::kWaiting;
  std::vector<LeaseView> leases;
  std::vector<EvalView> evals;
  std::optional<EvalView> probe;  // A slice whose loss is known.
  bool drain = false;
  std::string notice;
};
// An unknown name gets phase and notice only.
WorkerView ViewFor(const Policy& policy, const State& state, const Soft& soft,
                   const std::string& worker, Instant now);

// What a probe is worth against the evaluations of the version that it is of.
// Losses within 1 % of each other agree.
struct ProbeVerdict {
  enum class Kind { kAgrees, kDiffers, kNotCompared };
  Kind kind = Kind::kNotCompared;
  std::string reason;  // In words, with both figures.
};
ProbeVerdict JudgeProbe(const State& state, const ProbeEvent& probe);

// active, suspect, lost, left, refused or evicted, for status and log lines.
const char* StandingOf(const Policy& policy, const State& state,
                       const Soft& soft, const std::string& worker,
                       Instant now);

// H of a round.
uint32_t IntervalOfRound(const Policy& policy, uint64_t round);

}  // namespace diloco

#endif  // COORDINATOR_CORE_MACHINE_H_

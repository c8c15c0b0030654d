// The coordinator's durable state, rebuilt by evolving the journal's facts, and
// the soft state that a restart begins anew.
#ifndef COORDINATOR_CORE_STATE_H_
#define COORDINATOR_CORE_STATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "coordinator/core/facts.h"

namespace diloco {

// Workers that left or are lost and whose state is kept, for their return and
// for status. When one more comes, the one that has been away longest is
// forgotten: under its name a new worker may join, tokens that it carried do
// not count, and a repeat of its last upload is answered as by a stranger. One
// that an open round, fold or evaluation names is never forgotten, nor is an
// evicted one: those may not join again.
inline constexpr size_t kRememberedDepartures = 1000;

inline constexpr size_t kBlankAttempts = 16;

// active -> lost (silent for the lease) -> active (heard again or joined)
// active, lost -> left -> active (joined again); any -> evicted, for good.
enum class Membership { kActive, kLost, kLeft, kEvicted };
const char* MembershipName(Membership membership);

struct WorkerState {
  Membership membership = Membership::kActive;
  std::string session;
  std::string previous_session;  // What the last Join presented.
  std::string replaced_session;  // What the last Join ended.
  std::string attempt;
  // Attempts of Joins that presented no token, oldest first: a copy of one of
  // them that comes late must not take the name from a newer process.
  std::vector<std::string> blank_attempts;
  std::string peer;
  bool draining = false;
  std::string refusal;  // Why its newest session was refused, once it was.
  uint64_t rounds_folded = 0;    // Of all fragments.
  uint64_t fragment_tokens = 0;  // Folded, summed over the fragments.
  uint64_t tokens_folded = 0;    // Their mean over the fragments.
  uint64_t data_end = 0;         // Furthest that its updates have reached.
  uint64_t departed_at = 0;      // State::revision when it left or was lost.

  friend bool operator==(const WorkerState&, const WorkerState&) = default;
};

// An update that counts, and the sequence number of the record that says so.
struct StoredUpdate : UpdateCommitted {
  uint64_t sequence = 0;

  friend bool operator==(const StoredUpdate&, const StoredUpdate&) = default;
};

struct OpenRound {
  uint64_t round = 0;
  uint64_t base_version = 0;
  uint32_t steps = 0;  // Of a whole window.
  std::map<std::string, Lease> leases;
  std::set<std::string> late;  // Of `leases`: the round does not wait for them.
  std::map<std::string, StoredUpdate> committed;
  std::map<std::string, UpdateRefused> refused;
  absl::Duration deadline;  // Of one period; an extension starts another.
  std::string reason;       // Of its opening, in words.

  friend bool operator==(const OpenRound&, const OpenRound&) = default;
};

// Of a worker in one fragment.
struct WindowState {
  // Tokens of leases whose round closed without this worker since it was last
  // folded; under `late: carry` they extend its next lease.
  uint64_t carried_tokens = 0;
  double progress_reached = 0;  // End of its last window: never goes back.

  friend bool operator==(const WindowState&, const WindowState&) = default;
};

// An update that was accepted, for the recognition of one that comes again.
struct SeenUpdate {
  Digest digest;
  uint64_t round = 0;
  std::string worker;

  friend bool operator==(const SeenUpdate&, const SeenUpdate&) = default;
};
inline constexpr size_t kSeenUpdates = 1024;
inline constexpr size_t kNormHistory = 16;

struct FragmentState {
  uint64_t version = 0;
  Digest digest;
  uint64_t last_round = 0;   // Highest round number used; 0 before the first.
  uint64_t first_round = 1;  // Of this lineage: its window ends at the offset.
  // Where the windows of the newest round end on the run's axis of steps. It
  // puts the rounds of all fragments in one order, the same for everyone.
  uint64_t due_step = 0;
  uint64_t folded_tokens = 0;
  std::map<std::string, WindowState> windows;  // By worker.
  std::vector<double> norms;  // Of the updates folded last, newest last.
  std::optional<OpenRound> open;
  // Closed, not yet published: the fold is pending.
  std::optional<RoundClosed> folding;
  // The last verdict on each worker's key, for repeated calls after the close.
  std::map<std::string, StoredUpdate> last_committed;
  std::map<std::string, UpdateRefused> last_refused;
  // What screens compare with, oldest first: the updates accepted last, and
  // norm_per_lr of each worker's updates that were folded last.
  std::vector<SeenUpdate> seen;
  std::map<std::string, std::vector<double>> norm_history;

  friend bool operator==(const FragmentState&, const FragmentState&) = default;
};

struct EvalSlice {
  std::string worker;
  uint64_t first_window = 0;
  uint64_t windows = 0;
  std::optional<double> loss_sum;
  uint64_t tokens = 0;

  friend bool operator==(const EvalSlice&, const EvalSlice&) = default;
};

struct EvalState {
  uint64_t version = 0;
  std::vector<uint64_t> versions;  // By fragment; empty when there is one.
  std::vector<EvalSlice> slices;

  friend bool operator==(const EvalState&, const EvalState&) = default;
};

struct EvalResult {
  uint64_t version = 0;
  double loss = 0;  // Nats per token.
  uint64_t tokens = 0;
  std::vector<EvalSlice> slices;  // All reported, for repeated reports.

  friend bool operator==(const EvalResult&, const EvalResult&) = default;
};

// What was changed of the settings that the run was created with. The values of
// keys that were never changed are not here.
struct SettingsState {
  uint64_t revision = 0;  // Of the newest SettingsChanged.
  std::map<std::string, std::string> accepted;
  // `accepted` but for what waits for the open round to close.
  std::map<std::string, std::string> in_force;
  uint64_t applied = 0;  // Grows whenever `in_force` changes.
  // Digests of all settings before each change, oldest first.
  std::vector<Digest> former;
  // Progress that some worker had reached at the newest change: a schedule does
  // not go back when the run gets longer.
  double progress_floor = 0;

  friend bool operator==(const SettingsState&, const SettingsState&) = default;
};

// What the guard compares with. Resuming after its alarm begins it anew.
struct GuardState {
  struct Lowest {
    double loss = 0;
    uint64_t version = 0;
    friend bool operator==(const Lowest&, const Lowest&) = default;
  };
  std::optional<Lowest> lowest;  // Complete evaluation so far.
  bool alarmed = false;          // The pause is the guard's.

  friend bool operator==(const GuardState&, const GuardState&) = default;
};
inline constexpr size_t kGuardNorms = 32;

struct State {
  std::string run;
  std::string lineage;
  std::vector<std::string> past_lineages;  // That this one goes on from.
  Digest settings_digest;                  // Of the settings as accepted.
  SettingsState settings;
  Digest layout_digest;
  uint64_t epoch = 0;
  std::string boot_nonce;
  // Grows by one with every fact: the sequence number of the newest one.
  uint64_t revision = 0;
  std::map<std::string, WorkerState> workers;
  std::vector<FragmentState> fragments;
  // A token trains every fragment and is folded once into each: the mean over
  // the fragments.
  uint64_t folded_tokens = 0;
  bool started = false;  // The first round has opened.
  bool paused = false;
  std::string pause_reason;
  GuardState guard;
  std::optional<uint64_t> stop_after_round;
  std::string stop_reason;
  bool finished = false;
  std::string finish_reason;
  std::optional<EvalState> eval;            // Open evaluation.
  std::optional<EvalResult> last_eval;      // Newest complete one.
  std::optional<uint64_t> evaluated_until;  // Newest version ever opened.

  friend bool operator==(const State&, const State&) = default;
};

// Numbers the copies of theta that there were: it grows by one with each
// version that a fragment publishes. Of one fragment it is the version.
uint64_t ThetaVersion(const State& state);
// The versions by fragment that theta consists of; empty when there is one
// fragment, whose version says it all.
std::vector<uint64_t> ThetaVersions(const State& state);

// Applies one fact. Facts come from Decide or from the journal; an impossible
// one is a bug or a damaged journal: INVALID_ARGUMENT, state unchanged.
absl::Status Evolve(State& state, const Fact& fact);

// What a worker's beat says of the work that it holds.
struct WindowReport {
  uint64_t round = 0;         // Whose lease it trains under.
  uint32_t leased_steps = 0;  // Done of that lease.
  uint32_t steps = 0;         // Not handed in yet, carried ones included.
  uint64_t tokens = 0;        // Of those.
  uint64_t version = 0;       // Of its copy of the fragment, and its digest.
  std::optional<Digest> digest;
  uint32_t fragment = 0;
};

// Never durable: instants and measured rates.
struct Soft {
  struct Worker {
    // Absent: not heard of since this process started.
    std::optional<Instant> last_heard;
    double step_seconds = 0;    // 0: not measured yet.
    double upload_seconds = 0;  // Of its last update; 0: not measured yet.
    // A call came under the newest session, so its Join's reply was not lost.
    bool session_used = false;
    bool probed = false;                       // In that session.
    std::map<uint32_t, WindowReport> windows;  // By fragment.
    Instant windows_at;                        // When they came.
  };
  struct Round {
    Instant started_at;     // Opening or restart.
    Instant deadline_from;  // Opening, restart or last extension.
    Instant closed_at;      // The one before it; or restart.
    // Of the updates that were accepted since, one after the other.
    std::vector<Instant> arrivals = {};
  };
  Instant started_at;  // Of this process; later by the time it stood still.
  std::map<std::string, Worker> workers;
  std::vector<Round> rounds;  // By fragment.
  Instant eval_opened_at;
  std::string no_room;  // As the last tick said.
};

// The soft state right after a start: every lease and the open round's whole
// deadline begin anew.
Soft StartSoft(const State& state, Instant now);

}  // namespace diloco

#endif  // COORDINATOR_CORE_STATE_H_

// What a worker does next: a pure function of what it holds and of what the
// coordinator shows it. No I/O, no time. The agent in worker/runtime is the
// only caller in the daemon; it performs the action and updates LocalState.
//
// Every inner step belongs to the open window of each fragment. A fragment is
// due when its window's steps are done: its update is taken. While that update
// is under way the steps go on, at most `overlap` of them before its result is
// merged; they are the beginning of the fragment's next window.
//
// Fragments are taken in the order of their due steps, which is the same for
// all workers, and as far apart: one whose window lies too late among the
// others, as rounds were missed, is handed in with the steps that it has.
// Otherwise two workers could wait for each other's updates of two fragments.
#ifndef WORKER_CORE_SESSION_MACHINE_H_
#define WORKER_CORE_SESSION_MACHINE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/config/run_settings.h"

namespace diloco {

// The stretch of inner steps between two takes of a fragment. Survives in the
// checkpoint.
struct Window {
  uint64_t round = 0;  // 0: none begun.
  uint64_t base_version = 0;
  uint32_t steps_done = 0;  // Under the lease of `round`.
  uint64_t tokens = 0;      // Since the last take, carried ones included.
  uint32_t steps = 0;       // Likewise.
  double loss_sum = 0;      // Of `losses` steps, for the mean.
  uint64_t losses = 0;
  double lr_sum = 0;       // Learning rates of those steps.
  bool delivered = false;  // Accepted, or refused for good.
  bool last = false;       // The run ends with it.
  // The run's progress at the window's start, and what a step adds.
  double progress = 0;
  double progress_step = 0;

  friend bool operator==(const Window&, const Window&) = default;
};

struct HeldFragment {
  std::optional<uint64_t>
      version;    // Of the anchor; none before the first pull.
  Window window;  // Being trained, or taken and not merged yet.
  // Steps since the take of `window`: they become the next one when the result
  // of this one is merged.
  Window ahead;
  // The update of this round was taken and may have arrived: its window is
  // over, and no other one comes under that key. 0: none.
  uint64_t taken_round = 0;
  // Its update or its result is on the way beside training, in this process.
  bool busy = false;
};

struct LocalState {
  std::vector<HeldFragment> fragments;
  // Where the newest step stands on the schedule; absent before the first.
  std::optional<double> progress;
  std::vector<uint32_t> evaluated;  // Slices of what is held, in this process.
  bool probe_due = false;           // It started cold, in this process.
};

// Whether this worker is to leave, and with what.
enum class Leaving {
  kNo,
  kAfterWindow,  // Once it has finished and handed in what it is at.
  kWithSteps,    // It hands in the steps that are done.
};

// What the machine reads of a RunView.
struct ViewInput {
  enum class Phase { kWaiting, kRunning, kPaused, kFinished };
  Phase phase = Phase::kWaiting;
  Leaving leaving = Leaving::kNo;
  struct Lease {
    uint64_t round = 0;
    uint64_t base_version = 0;
    uint32_t steps = 0;
    bool delivered = false;
    // The window is full with so many steps, carried ones included; 0: when
    // `steps` are done.
    uint32_t window_steps = 0;
    double progress = 0;
    double progress_step = 0;
    bool last = false;  // No window of the fragment is expected to follow.
    // Where the window ends on the run's axis of steps, which puts the rounds
    // of all fragments in one order; 0: not told.
    uint64_t due_step = 0;
    uint32_t round_steps = 0;  // Of a whole window, of whoever makes most.
  };
  struct Fragment {
    uint64_t version = 0;
    bool damaged = false;  // That version is held, with another digest.
    std::optional<Lease> lease;
  };
  std::vector<Fragment> fragments;
  struct Eval {
    uint64_t version = 0;  // Of theta.
    uint32_t slice = 0;
    std::vector<uint64_t> versions;  // By fragment; empty: there is one.
  };
  std::vector<Eval> evals;
};

// How the run synchronises.
struct SyncRules {
  LatePolicy late = LatePolicy::kCarry;
  uint32_t overlap = 0;  // Steps between take and merge.
  bool slip = false;     // Merged at the first step boundary after arrival.
};

struct Action {
  enum class Kind {
    kPull,      // Nothing usable held: download the newest version.
    kCatchUp,   // Apply what leads to `version`.
    kProbe,     // Prove itself on the version held.
    kEvaluate,  // Slice `slice` of the version held.
    kBegin,     // Start the window of the lease, from the anchor or carrying.
    kStep,      // One inner step.
    kSubmit,    // Take, encode, spool, upload.
    kWait,      // For another view.
    kLeave,     // There is nothing left to hand in.
    kFinish,    // The run is over.
  };
  Kind kind = Kind::kWait;
  uint32_t fragment = 0;  // kPull, kCatchUp, kBegin, kSubmit.
  uint64_t version = 0;
  // kCatchUp, kBegin: unsent steps stay in the local values and in the window;
  // otherwise the local values are put back on the anchor, or mixed with it.
  bool carry = false;
  uint32_t slice = 0;
  std::string reason;  // In words, for the log when it changes.
};

Action NextAction(const LocalState& local, const ViewInput& view,
                  const SyncRules& rules);

// The update of the fragment's window was taken; what is trained goes into
// `ahead`.
bool IsTaken(const HeldFragment& fragment);

// Whether `steps` more inner steps, and handing their update in, are predicted
// to be done within `left`. What was not measured yet is not predicted.
bool WindowFits(uint32_t steps, double step_seconds, double hand_in_seconds,
                absl::Duration left);

// Steps until the fragment's window under this lease is over.
uint32_t StepsToGo(const HeldFragment& fragment, const ViewInput::Lease& lease);

// Applies kBegin: the window of this lease, with or without what is in it.
void BeginWindow(HeldFragment& fragment, const ViewInput::Lease& lease,
                 bool carry);
// Applies a catch-up to `version`. With `carry` the work that was not sent
// stays in the window. Otherwise the window is over, and what was trained since
// the take of a delivered one is the beginning of the next, unless the run was
// to end with it: then the local values are those of theta.
void FinishCatchUp(HeldFragment& fragment, uint64_t version, bool carry);
// Applies the loss of an update that was taken and not sent: its steps are in
// the local values, and handed in with those that came after it.
void ForgetTake(HeldFragment& fragment);
// Counts an inner step in every fragment.
void CountStep(LocalState& local, uint64_t tokens, double lr,
               std::optional<double> loss);
// The number of the copy of theta that is held: the sum of the fragments'
// versions.
uint64_t ThetaVersion(const LocalState& local);
// The run's progress at the end of the next step: that of the fragment which is
// furthest.
double ProgressOfNextStep(const LocalState& local);

}  // namespace diloco

#endif  // WORKER_CORE_SESSION_MACHINE_H_

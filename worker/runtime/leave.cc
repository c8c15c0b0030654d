// How an agent ends: it hands in what is done, gives its lease back, and keeps
// the rest on disk for the next start.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "worker/runtime/agent.h"

namespace diloco {
namespace {

// A call that fails may be a line that broke; a second one tells.
constexpr absl::Duration kSecondCall = absl::Milliseconds(300);

}  // namespace

std::optional<Leaving> Agent::LookWhetherToLeave(
    const std::optional<RunView>& view) {
  const std::optional<Instant> until = link_->hand_in_by();
  if (!until.has_value()) return Leaving::kNo;
  if (!leaving_) {
    leaving_ = true;
    last_reason_ = options_.stop_requested() ? "asked to stop" : "drained";
    DILOCO_LOG(INFO) << "leaves worker=" << options_.worker << " reason=\""
                     << last_reason_ << "\" round=" << progress_.round
                     << " window_step=" << progress_.window_step
                     << " drain_timeout="
                     << absl::FormatDuration(options_.drain_timeout);
    // Whether there is anybody to hand it in to: a part of a window that is
    // taken can only be handed in, a window that is left alone goes on.
    Report("draining");
    link_->BeatNow();
  }
  if (link_->away()) {
    link_->WaitForChange(view.has_value() ? view->revision : 0, kSecondCall);
    link_->BeatNow();
  }
  const absl::Duration left = *until - options_.clock->Now();
  if (link_->away() || left <= absl::ZeroDuration()) return std::nullopt;
  if (!view.has_value() || view->leases.empty()) return Leaving::kWithSteps;
  // The windows are trained side by side and handed in one after the other.
  uint32_t to_go = 0;
  const ViewInput seen = ToInput(*view, Leaving::kNo);
  for (size_t i = 0; i < local_.fragments.size(); ++i) {
    const std::optional<ViewInput::Lease>& lease = seen.fragments[i].lease;
    if (!lease.has_value() || IsTaken(local_.fragments[i])) continue;
    to_go = std::max(to_go, StepsToGo(local_.fragments[i], *lease));
  }
  const double hand_in =
      hand_in_seconds_ * static_cast<double>(view->leases.size());
  return WindowFits(to_go, progress_.step_seconds, hand_in, left)
             ? Leaving::kAfterWindow
             : Leaving::kWithSteps;
}

void Agent::TellWhatIsKept() const {
  std::string kept;
  for (size_t i = 0; i < local_.fragments.size(); ++i) {
    const Window& window = local_.fragments[i].window;
    if (window.delivered || window.steps == 0) continue;
    if (!kept.empty()) kept += "; ";
    if (local_.fragments.size() > 1)
      absl::StrAppend(&kept, "fragment ", i, ": ");
    const std::optional<SpooledUpdate>& spooled = copies_[i].spooled;
    if (spooled.has_value() && spooled->round == window.round) {
      absl::StrAppend(&kept, "the update of ", spooled->steps,
                      " steps of round ", spooled->round, " (", spooled->bytes,
                      " bytes) and a checkpoint are kept: the next start "
                      "hands it in, or goes on with its steps");
    } else if (writer_->durable_steps() == inner_steps_) {
      absl::StrAppend(&kept, window.steps, " steps of round ", window.round,
                      " are kept in a checkpoint: the next start goes on "
                      "with them");
    } else {
      absl::StrAppend(&kept, "no checkpoint has all of the ", window.steps,
                      " steps of round ", window.round,
                      ": the next start goes on with those of the newest one");
    }
  }
  if (kept.empty()) kept = "nothing is left to hand in";
  DILOCO_LOG(INFO) << kept << " worker=" << options_.worker
                   << " scratch=" << options_.scratch;
}

void Agent::Finish(const absl::Status& status) {
  // A checkpoint has every update that was taken.
  for (size_t i = 0; i < copies_.size(); ++i) {
    Copy& copy = copies_[i];
    if (copy.spooling == nullptr) continue;
    absl::StatusOr<SpooledUpdate> spooled = copy.spooling->Take();
    copy.spooling.reset();
    if (spooled.ok()) {
      copy.spooled = *std::move(spooled);
    } else {
      ForgetTake(local_.fragments[i]);
    }
  }
  // A superseded session must not touch the run, nor the scratch of the process
  // that took it over.
  if (!absl::IsPermissionDenied(status)) {
    // Past its time, what was written with the update must do: the coordinator
    // knows what became of that.
    (void)writer_->Wait();
    const bool written =
        leaving_ && writer_->durable_steps() == inner_steps_ &&
        options_.clock->Now() >= link_->hand_in_by().value_or(Instant());
    if (!absl::IsInternal(status) && !written) {
      const absl::Status saved = WriteCheckpoint();
      if (!saved.ok()) {
        DILOCO_LOG(ERROR) << "the last checkpoint was not written error=\""
                          << saved.message() << "\"";
      }
    }
    if (leaving_ && status.ok()) TellWhatIsKept();
    if (status.ok() && !link_->away()) {
      // The run's report counts the last upload and window, too.
      Report("leaving");
      link_->BeatNow();
    }
    if (!link_->away()) {
      (void)options_.port->Leave(status.ok() ? last_reason_
                                             : std::string(status.message()));
    }
  }
  options_.port->Shutdown();
  link_->Stop();
  for (Copy& copy : copies_) EndJobs(copy);
  (void)writer_->Wait();
}

}  // namespace diloco

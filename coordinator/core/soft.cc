#include "coordinator/core/soft.h"

#include <cmath>

namespace diloco {
namespace {

// A longer step or upload than this is a mistake of the sender.
constexpr double kMaxSeconds = 30.0 * 24 * 3600;

void Measure(double reported, double& kept) {
  if (std::isfinite(reported) && reported > 0 && reported <= kMaxSeconds) {
    kept = reported;
  }
}

struct Hear {
  Soft& soft;
  const Instant now;

  Soft::Worker& From(const std::string& worker) {
    Soft::Worker& heard = soft.workers[worker];
    heard.last_heard = now;
    heard.session_used = true;
    return heard;
  }

  void operator()(const JoinEvent& event) {
    soft.workers[event.worker].last_heard = now;
  }
  void operator()(const BeatEvent& event) {
    Soft::Worker& worker = From(event.worker);
    Measure(event.step_seconds, worker.step_seconds);
    if (!event.window.has_value()) return;
    worker.windows = {{event.window->fragment, *event.window}};
    for (const WindowReport& other : event.others) {
      worker.windows[other.fragment] = other;
    }
    worker.windows_at = now;
  }
  void operator()(const ProbeEvent& event) { From(event.worker).probed = true; }
  void operator()(const UpdateVerifiedEvent& event) {
    Soft::Worker& worker = From(event.worker);
    Measure(event.upload_seconds, worker.upload_seconds);
    // Who trains holds all of theta; the beat that says so is still to come.
    std::erase_if(worker.windows, [](const auto& window) {
      return !window.second.digest.has_value();
    });
  }
  void operator()(const UpdateUnusableEvent& event) { From(event.worker); }
  void operator()(const EvalReportEvent& event) { From(event.worker); }
  void operator()(const LeaveEvent& event) { From(event.worker); }
  void operator()(const FoldDoneEvent&) {}
  void operator()(const PauseEvent&) {}
  void operator()(const StopEvent&) {}
  void operator()(const DrainEvent&) {}
  void operator()(const EvictEvent&) {}
  void operator()(const SettingsEvent&) {}
  void operator()(const TickEvent& event) { soft.no_room = event.no_room; }
};

Soft::Round& MutableRound(Soft& soft, uint32_t fragment) {
  if (soft.rounds.size() <= fragment) {
    soft.rounds.resize(
        fragment + 1,
        Soft::Round{soft.started_at, soft.started_at, soft.started_at});
  }
  return soft.rounds[fragment];
}

}  // namespace

void HearEvent(Soft& soft, const Event& event, Instant now) {
  std::visit(Hear{soft, now}, event);
}

void NoteFact(Soft& soft, const Fact& fact, Instant now) {
  if (const auto* joined = std::get_if<WorkerJoined>(&fact)) {
    Soft::Worker& worker = soft.workers[joined->worker];
    worker.session_used = false;
    worker.probed = false;
    worker.windows.clear();
    // Before its first beat, too, a joiner has theta to download.
    if (joined->fresh) worker.windows[0] = WindowReport{};
  } else if (const auto* opened = std::get_if<RoundOpened>(&fact)) {
    Soft::Round& round = MutableRound(soft, opened->fragment);
    round.started_at = round.deadline_from = now;
    round.arrivals.clear();
  } else if (const auto* extended = std::get_if<RoundExtended>(&fact)) {
    MutableRound(soft, extended->fragment).deadline_from = now;
  } else if (const auto* closed = std::get_if<RoundClosed>(&fact)) {
    MutableRound(soft, closed->fragment).closed_at = now;
  } else if (const auto* update = std::get_if<UpdateCommitted>(&fact)) {
    MutableRound(soft, update->fragment).arrivals.push_back(now);
  } else if (std::holds_alternative<EvalOpened>(fact)) {
    soft.eval_opened_at = now;
  }
}

void StandStill(Soft& soft, absl::Duration stall) {
  soft.started_at += stall;
  soft.eval_opened_at += stall;
  for (Soft::Round& round : soft.rounds) {
    round.started_at += stall;
    round.deadline_from += stall;
    for (Instant& arrival : round.arrivals) arrival += stall;
    round.closed_at += stall;
  }
  for (auto& [name, worker] : soft.workers) {
    if (worker.last_heard.has_value()) *worker.last_heard += stall;
    worker.windows_at += stall;
  }
}

Instant LastHeard(const Soft& soft, const std::string& worker) {
  const auto found = soft.workers.find(worker);
  if (found == soft.workers.end() || !found->second.last_heard.has_value()) {
    return soft.started_at;
  }
  return *found->second.last_heard;
}

Soft::Round RoundTimes(const Soft& soft, uint32_t fragment) {
  if (fragment < soft.rounds.size()) return soft.rounds[fragment];
  return Soft::Round{soft.started_at, soft.started_at, soft.started_at};
}

void EvolveSoft(Soft& soft, const Event& event, const Decision& decision,
                Instant now) {
  if (!decision.status.ok()) return;
  HearEvent(soft, event, now);
  for (const Fact& fact : decision.facts) NoteFact(soft, fact, now);
}

}  // namespace diloco

#include "coordinator/core/eligibility.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/core/round_policy.h"
#include "coordinator/core/soft.h"

namespace diloco {
namespace {

constexpr absl::Duration kUnmeasuredDeadline = absl::Minutes(10);
constexpr absl::Duration kShortestDeadline = absl::Seconds(10);
constexpr absl::Duration kLongestDeadline = absl::Hours(30 * 24);
constexpr double kSlowestFactor = 1.5;
constexpr size_t kFewWorkers = 3;
constexpr double kDeviations = 4;
constexpr double kLeastOfMedian = 1.2;
constexpr double kMostOfMedian = 2;
constexpr double kShareForJoiners = 0.25;
// Of the time left, for what the prediction does not know.
constexpr double kMargin = 0.1;
// Of a training step's time, an evaluation of as many tokens takes at most so
// much: it has no way back through the model.
constexpr double kEvaluationShare = 0.5;

absl::Duration Within(double seconds, absl::Duration least) {
  return WholeMilliseconds(
      std::clamp(absl::Seconds(seconds), least, kLongestDeadline));
}

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half]
                                : (values[half - 1] + values[half]) / 2;
}

// "95 s", "1.25 s".
std::string Figure(double seconds) {
  return absl::StrFormat("%.4g s", seconds);
}
std::string Figure(absl::Duration duration) {
  return Figure(absl::ToDoubleSeconds(duration));
}

AutoDeadline OfPrediction(double seconds, std::string reason) {
  const absl::Duration deadline = Within(seconds, kShortestDeadline);
  if (deadline == kShortestDeadline) {
    absl::StrAppend(&reason, ", at least ", Figure(kShortestDeadline));
  }
  return {deadline, std::move(reason)};
}

struct Pace {
  double step = 0;  // Seconds; 0: not measured.
  double upload = 0;
  double evaluation = 0;  // Of slices that come before the steps.

  bool measured() const { return step > 0; }
  double Finish(uint32_t steps) const {
    return steps * step + upload + evaluation;
  }
};

Pace PaceOf(const Soft& soft, const std::string& worker) {
  const auto found = soft.workers.find(worker);
  if (found == soft.workers.end()) return {};
  return {found->second.step_seconds, found->second.upload_seconds};
}

// Windows of the newest version that the worker is yet to evaluate, before it
// goes on in a round of `workers`: its open slices, or its share of an
// evaluation that opens with the round.
uint64_t WindowsToEvaluate(const Policy& policy, const State& state,
                           const std::string& worker, size_t workers) {
  const uint64_t version = ThetaVersion(state);
  uint64_t windows = 0;
  if (state.eval.has_value() && state.eval->version == version) {
    for (const EvalSlice& slice : state.eval->slices) {
      if (slice.worker == worker && !slice.loss_sum.has_value()) {
        windows += slice.windows;
      }
    }
    return windows;
  }
  if (policy.eval_every == 0 ||
      version % (policy.eval_every * state.fragments.size()) != 0 ||
      (state.evaluated_until.has_value() &&
       *state.evaluated_until >= version)) {
    return 0;
  }
  return (policy.eval_windows + workers - 1) / workers;
}

// With the time of its evaluation, by the tokens that windows had the last
// time. A deadline that was chosen is not for the coordinator to divide.
Pace WithEvaluation(const Policy& policy, const State& state, Pace pace,
                    uint64_t windows) {
  if (policy.deadline.has_value() || windows == 0 ||
      !state.last_eval.has_value() || policy.batch_tokens == 0) {
    return pace;
  }
  uint64_t evaluated = 0;
  for (const EvalSlice& slice : state.last_eval->slices) {
    evaluated += slice.windows;
  }
  if (evaluated == 0) return pace;
  const double tokens = static_cast<double>(windows) *
                        static_cast<double>(state.last_eval->tokens) /
                        static_cast<double>(evaluated);
  pace.evaluation = kEvaluationShare * pace.step * tokens /
                    static_cast<double>(policy.batch_tokens);
  return pace;
}

// The worker's newest word on what it holds; the second one unless it is old.
const WindowReport* NewestReport(const Soft& soft, uint32_t fragment,
                                 const std::string& worker) {
  const auto found = soft.workers.find(worker);
  if (found == soft.workers.end()) return nullptr;
  const auto window = found->second.windows.find(fragment);
  return window == found->second.windows.end() ? nullptr : &window->second;
}
const WindowReport* FreshReport(const Policy& policy, const Soft& soft,
                                uint32_t fragment, const std::string& worker,
                                Instant now) {
  const WindowReport* report = NewestReport(soft, fragment, worker);
  return report != nullptr &&
                 now - soft.workers.at(worker).windows_at < policy.suspect_after
             ? report
             : nullptr;
}

// Newest round of which the worker's update was judged.
uint64_t SettledRound(const FragmentState& of, const std::string& worker) {
  uint64_t round = 0;
  const auto look = [&](const auto& verdicts) {
    const auto found = verdicts.find(worker);
    if (found != verdicts.end()) round = std::max(round, found->second.round);
  };
  look(of.last_committed);
  look(of.last_refused);
  if (of.open.has_value()) {
    look(of.open->committed);
    look(of.open->refused);
  }
  return round;
}

// Steps in the worker's window, as far as known: a report that is older than
// the worker's last update tells of what was handed in since.
uint32_t StepsHeld(const State& state, const Soft& soft, uint32_t fragment,
                   const std::string& worker) {
  const WindowReport* report = NewestReport(soft, fragment, worker);
  return report == nullptr ||
                 report->round <=
                     SettledRound(state.fragments[fragment], worker)
             ? 0
             : report->steps;
}

// The rest of a window of `whole` steps; a full one is handed in at once.
Seat RestOfWindow(const std::string& worker, uint32_t whole, uint32_t held) {
  return {worker, whole > held ? whole - held : 1, whole, held};
}

// A worker for which the deadline is too early.
struct Beyond {
  Seat seat;
  double finish = 0;
  std::string reason;
};

Beyond BeyondDeadline(Seat seat, const Pace& pace, absl::Duration deadline) {
  const double finish = pace.Finish(seat.steps);
  std::string reason = absl::StrCat(
      "at ", Figure(pace.step), " a step it would finish its window in ",
      Figure(finish),
      pace.evaluation > 0
          ? absl::StrCat(", ", Figure(pace.evaluation), " of it evaluating")
          : "",
      ", after the deadline of ", Figure(deadline));
  return {std::move(seat), finish, std::move(reason)};
}

uint32_t StepsThatFit(double seconds, const Pace& pace, uint32_t most) {
  const double steps =
      std::floor((seconds - pace.upload - pace.evaluation) / pace.step);
  return static_cast<uint32_t>(
      std::clamp(steps, 0.0, static_cast<double>(most)));
}

// A worker that needs longer for `steps` is too slow for whole windows in the
// open round, whose own deadline may be longer for others.
absl::Duration SlowFrom(const Policy& policy, const Soft& soft,
                        const OpenRound& open, const std::string& worker,
                        uint32_t steps) {
  if (policy.deadline.has_value()) return *policy.deadline;
  std::vector<double> finishes = {PaceOf(soft, worker).Finish(steps)};
  for (const auto& [name, lease] : open.leases) {
    const Pace pace = PaceOf(soft, name);
    if (pace.measured()) finishes.push_back(pace.Finish(steps));
  }
  return AutoDeadlineOf(std::move(finishes)).deadline;
}

// Of a worker in a round of `steps`: when these follow speed, as many as it
// makes until the fastest of `workers` has finished all.
uint32_t OwnSteps(const Policy& policy, const Soft& soft,
                  const std::vector<std::string>& workers,
                  const std::string& worker, uint32_t steps) {
  const Pace own = PaceOf(soft, worker);
  if (!policy.steps_by_speed || !own.measured()) return steps;
  double soonest = own.Finish(steps);
  for (const std::string& name : workers) {
    const Pace pace = PaceOf(soft, name);
    if (pace.measured()) soonest = std::min(soonest, pace.Finish(steps));
  }
  // Rounded to the nearest: who is as fast makes all.
  return std::max(1u, StepsThatFit(soonest + own.step / 2, own, steps));
}

// As RoundSteps, for workers that make different numbers of them.
uint32_t StepsBySpeed(const Policy& policy, const State& state,
                      const Soft& soft, uint32_t fragment,
                      const std::vector<std::string>& workers, uint64_t round) {
  const uint32_t whole = StepsOfRound(policy, state, fragment, round);
  double all = 0;
  for (const std::string& name : workers) {
    all += OwnSteps(policy, soft, workers, name, whole);
  }
  const uint64_t folded = state.fragments[fragment].folded_tokens;
  const double left = policy.train_tokens > folded
                          ? static_cast<double>(policy.train_tokens - folded)
                          : 0;
  const double needed = std::ceil(
      left * whole /
      (all * static_cast<double>(std::max<uint64_t>(1, policy.batch_tokens))));
  return static_cast<uint32_t>(
      std::clamp(needed, 1.0, static_cast<double>(whole)));
}

RoundPlan PlanOfSteps(const Policy& policy, const State& state,
                      const Soft& soft, uint32_t fragment,
                      const std::vector<std::string>& workers, uint64_t round,
                      uint32_t steps) {
  const auto pace_of = [&](const std::string& name) {
    return WithEvaluation(
        policy, state, PaceOf(soft, name),
        WindowsToEvaluate(policy, state, name, workers.size()));
  };
  std::vector<double> finishes;
  uint64_t tokens = 0;
  bool evaluating = false;
  for (const std::string& name : workers) {
    const Pace pace = pace_of(name);
    evaluating = evaluating ||
                 WindowsToEvaluate(policy, state, name, workers.size()) > 0;
    const uint32_t own = OwnSteps(policy, soft, workers, name, steps);
    if (pace.measured()) finishes.push_back(pace.Finish(own));
    tokens += own * policy.batch_tokens;
  }
  RoundPlan plan;
  if (policy.deadline.has_value()) {
    plan.deadline = WholeMilliseconds(
        std::clamp(*policy.deadline, absl::Milliseconds(1), kLongestDeadline));
    plan.deadline_reason = "sync.deadline";
  } else {
    AutoDeadline automatic = AutoDeadlineOf(finishes);
    plan.deadline = automatic.deadline;
    plan.deadline_reason = std::move(automatic.reason);
    if (evaluating && state.last_eval.has_value()) {
      absl::StrAppend(&plan.deadline_reason, ", evaluation included");
    }
  }
  const double limit = absl::ToDoubleSeconds(plan.deadline);
  // Who makes fewer steps is not waited for longer than those who make all.
  double slowest = 0;
  for (const double finish : finishes) {
    if (finish <= limit) slowest = std::max(slowest, finish);
  }
  const double fitting = (1 - kMargin) * (slowest > 0 ? slowest : limit);
  // What is in the windows when the run ends is lost.
  const bool last =
      StopsWith(state, fragment, round) ||
      state.fragments[fragment].folded_tokens + tokens >= policy.train_tokens;
  std::vector<Beyond> beyond;
  bool unmeasured = false;
  for (const std::string& name : workers) {
    const Pace pace = pace_of(name);
    const uint32_t own = OwnSteps(policy, soft, workers, name, steps);
    if (!pace.measured() || pace.Finish(own) <= limit) {
      unmeasured = unmeasured || !pace.measured();
      plan.seats.push_back({name, own});
      continue;
    }
    Seat seat;
    if (policy.late == LatePolicy::kCarry) {
      seat = RestOfWindow(name, own, StepsHeld(state, soft, fragment, name));
      if (last) {
        seat.steps = std::min(seat.steps,
                              std::max(1u, StepsThatFit(fitting, pace, own)));
      }
    } else {
      seat = {name, std::max(1u, StepsThatFit(fitting, pace, own))};
    }
    if (pace.Finish(seat.steps) <= limit) {
      plan.seats.push_back(std::move(seat));
    } else {
      beyond.push_back(BeyondDeadline(std::move(seat), pace, plan.deadline));
    }
  }
  std::stable_sort(
      beyond.begin(), beyond.end(),
      [](const Beyond& a, const Beyond& b) { return a.finish < b.finish; });
  const size_t keep =
      std::max<size_t>(policy.min_updates, (workers.size() + 1) / 2);
  for (Beyond& slow : beyond) {
    if (plan.seats.size() >= keep) {
      plan.skipped.push_back({slow.seat.worker, std::move(slow.reason)});
      continue;
    }
    if (!policy.deadline.has_value()) {
      const absl::Duration room =
          Within(kSlowestFactor * slow.finish, kShortestDeadline);
      if (room > plan.deadline) {
        plan.deadline = room;
        absl::StrAppend(&plan.deadline_reason, ", longer for ",
                        slow.seat.worker);
      }
    }
    plan.seats.push_back(std::move(slow.seat));
  }
  std::sort(plan.seats.begin(), plan.seats.end(),
            [](const Seat& a, const Seat& b) { return a.worker < b.worker; });
  if (unmeasured && !policy.deadline.has_value() &&
      plan.deadline < kUnmeasuredDeadline) {
    // It may be slower than all that were measured.
    plan.deadline = kUnmeasuredDeadline;
    plan.deadline_reason = "10 min while not every worker is measured";
  }
  if (evaluating && !state.last_eval.has_value() &&
      !policy.deadline.has_value() && plan.deadline < kUnmeasuredDeadline) {
    plan.deadline = kUnmeasuredDeadline;
    plan.deadline_reason = "10 min while no evaluation is complete";
  }
  return plan;
}

}  // namespace

AutoDeadline AutoDeadlineOf(std::vector<double> finishes) {
  if (finishes.empty()) return {kUnmeasuredDeadline, "nobody is measured yet"};
  if (finishes.size() <= kFewWorkers) {
    const double slowest = *std::max_element(finishes.begin(), finishes.end());
    return OfPrediction(kSlowestFactor * slowest,
                        absl::StrCat("1.5 x the slowest predicted finish of ",
                                     Figure(slowest)));
  }
  const double median = MedianOf(finishes);
  std::vector<double> distances;
  for (const double finish : finishes) {
    distances.push_back(std::abs(finish - median));
  }
  const double mad = MedianOf(std::move(distances));
  const double seconds =
      std::clamp(median + kDeviations * mad, kLeastOfMedian * median,
                 kMostOfMedian * median);
  return OfPrediction(
      seconds, absl::StrCat("median predicted finish of ", Figure(median),
                            " + 4 MAD of ", Figure(mad),
                            ", within 1.2 to 2 x the median"));
}

RoundPlan PlanRound(const Policy& policy, const State& state, const Soft& soft,
                    uint32_t fragment, const std::vector<std::string>& workers,
                    uint64_t round) {
  if (policy.steps_by_speed) {
    return PlanOfSteps(
        policy, state, soft, fragment, workers, round,
        StepsBySpeed(policy, state, soft, fragment, workers, round));
  }
  const uint32_t steps =
      RoundSteps(policy, state, fragment, round, workers.size());
  RoundPlan plan =
      PlanOfSteps(policy, state, soft, fragment, workers, round, steps);
  // At the end of the run fewer workers make more steps.
  const uint32_t more =
      RoundSteps(policy, state, fragment, round, plan.seats.size());
  if (more != steps) {
    plan = PlanOfSteps(policy, state, soft, fragment, workers, round, more);
  }
  return plan;
}

absl::Duration TimeLeft(const Policy& policy, const State& state,
                        const Soft& soft, uint32_t fragment, Instant now) {
  const OpenRound& open = *state.fragments[fragment].open;
  const absl::Duration until_deadline = std::max(
      absl::ZeroDuration(), DeadlineLeft(policy, state, soft, fragment, now));
  const std::vector<std::string> waited = WaitedFor(state, open);
  if (waited.empty()) return until_deadline;  // It lacks updates.
  std::vector<absl::Duration> finishes;
  for (const std::string& name : waited) {
    const Pace pace = WithEvaluation(
        policy, state, PaceOf(soft, name),
        WindowsToEvaluate(policy, state, name, open.leases.size()));
    if (!pace.measured()) return until_deadline;
    const uint32_t steps = open.leases.at(name).steps;
    const WindowReport* report = FreshReport(policy, soft, fragment, name, now);
    absl::Duration left = absl::Seconds(pace.Finish(steps));
    if (report != nullptr && report->round == open.round) {
      left = absl::Seconds(
          pace.Finish(steps - std::min(steps, report->leased_steps)));
      left -= now - soft.workers.at(name).windows_at;
    } else {
      left -= now - RoundTimes(soft, fragment).started_at;
    }
    finishes.push_back(std::max(absl::ZeroDuration(), left));
  }
  std::sort(finishes.begin(), finishes.end());
  const std::optional<size_t> quorum = QuorumOf(policy, state, fragment);
  if (!quorum.has_value()) return std::min(until_deadline, finishes.back());
  if (const std::optional<Instant> ends =
          GraceEnds(policy, state, soft, fragment)) {
    return std::min(until_deadline,
                    std::max(absl::ZeroDuration(), *ends - now));
  }
  const size_t missing = *quorum - open.committed.size();
  return std::min(until_deadline,
                  finishes[std::min(missing, finishes.size()) - 1]);
}

std::optional<LateSeat> LateSeatFor(const Policy& policy, const State& state,
                                    const Soft& soft, uint32_t fragment,
                                    const std::string& worker, Instant now) {
  const FragmentState& of = state.fragments[fragment];
  const OpenRound& open = *of.open;
  Pace pace = PaceOf(soft, worker);
  if (!pace.measured()) return std::nullopt;
  std::vector<std::string> workers = {worker};
  for (const auto& [name, lease] : open.leases) workers.push_back(name);
  const uint32_t steps =
      OwnSteps(policy, soft, workers, worker,
               RoundSteps(policy, state, fragment, open.round, workers.size()));
  if (policy.late == LatePolicy::kCarry &&
      absl::Seconds(pace.Finish(steps)) >
          SlowFrom(policy, soft, open, worker, steps)) {
    LateSeat late;
    late.seat =
        RestOfWindow(worker, steps, StepsHeld(state, soft, fragment, worker));
    const double left =
        absl::ToDoubleSeconds(TimeLeft(policy, state, soft, fragment, now));
    // Nothing is uploaded in the middle of a window.
    late.seat.in_round =
        std::max(1u, StepsThatFit(left + pace.upload, pace, late.seat.steps));
    late.reason =
        absl::StrCat("goes on in its window, ", late.seat.steps, " of ", steps,
                     " steps left, ", Figure(pace.Finish(late.seat.steps)),
                     " at ", Figure(pace.step), " a step");
    return late;
  }
  const WindowReport* report = FreshReport(policy, soft, fragment, worker, now);
  if (report == nullptr || report->version != open.base_version ||
      report->digest != of.digest) {
    return std::nullopt;
  }
  if (pace.upload <= 0) {
    for (const auto& [name, lease] : open.leases) {
      pace.upload = std::max(pace.upload, PaceOf(soft, name).upload);
    }
  }
  const absl::Duration left = TimeLeft(policy, state, soft, fragment, now);
  const absl::Duration whole =
      left + (now - RoundTimes(soft, fragment).started_at);
  if (left < kShareForJoiners * whole) return std::nullopt;
  LateSeat late;
  late.seat.worker = worker;
  late.seat.steps =
      StepsThatFit((1 - kMargin) * absl::ToDoubleSeconds(left), pace, steps);
  if (late.seat.steps == 0) return std::nullopt;
  late.reason =
      absl::StrCat("comes in mid-round, ", late.seat.steps, " of ", steps,
                   " steps fit into the ", Figure(left), " left");
  return late;
}

}  // namespace diloco

#include "coordinator/runtime/coordinator_metrics.h"

namespace diloco {
namespace {

constexpr char kRounds[] = "diloco_coordinator_rounds_total";
constexpr char kRoundsHelp[] =
    "Rounds that closed or were extended, by result.";
constexpr char kUpdates[] = "diloco_coordinator_updates_total";
constexpr char kUpdatesHelp[] = "Updates of workers, by result.";

// Of each worker's newest update that a round closed with or refused.
constexpr char kUpdateNorm[] = "diloco_coordinator_update_norm_per_lr";
constexpr char kUpdateNormHelp[] =
    "Norm of a worker's newest update over the learning rates of its steps, "
    "which screen.norm compares.";

constexpr char kLeases[] = "diloco_coordinator_leases_total";
constexpr char kLeasesHelp[] =
    "Leases of rounds, by kind: opened ones are waited for, late ones not.";

const std::vector<double> kSeconds = {0.01, 0.03, 0.1, 0.3, 1,    3,
                                      10,   30,   100, 300, 1000, 3000};

struct WorkerSeries {
  const char* name;
  const char* help;
  double (*value)(const WorkerProgress&);
};
constexpr WorkerSeries kWorkerSeries[] = {
    {"diloco_worker_loss", "Loss of a worker's last inner step.",
     [](const WorkerProgress& progress) { return progress.loss; }},
    {"diloco_worker_inner_steps", "Inner steps of a worker.",
     [](const WorkerProgress& progress) {
       return static_cast<double>(progress.inner_steps);
     }},
    {"diloco_worker_step_seconds", "Mean time of an inner step in the window.",
     [](const WorkerProgress& progress) { return progress.step_seconds; }},
    {"diloco_worker_learning_rate", "Learning rate in use.",
     [](const WorkerProgress& progress) { return progress.lr; }},
    {"diloco_worker_skipped_steps",
     "Steps skipped for a non-finite loss or gradient.",
     [](const WorkerProgress& progress) {
       return static_cast<double>(progress.skipped_steps);
     }},
};

std::map<ProbeVerdict::Kind, Counter*> AddProbes(MetricsRegistry* registry) {
  using Kind = ProbeVerdict::Kind;
  std::map<Kind, Counter*> counters;
  for (const auto& [kind, result] :
       {std::pair{Kind::kAgrees, "agrees"},
        std::pair{Kind::kDiffers, "refused"},
        std::pair{Kind::kNotCompared, "not_compared"}}) {
    counters[kind] = registry->AddCounter("diloco_coordinator_probes_total",
                                          "Probes of joining workers.",
                                          {{"result", result}});
  }
  return counters;
}

std::map<Screen, Counter*> AddScreens(MetricsRegistry* registry) {
  std::map<Screen, Counter*> counters;
  for (const Screen screen : kScreens) {
    counters[screen] =
        registry->AddCounter("diloco_coordinator_updates_screened_total",
                             "Updates that were refused, by screen.",
                             {{"screen", ScreenName(screen)}});
  }
  return counters;
}

std::map<Membership, Gauge*> AddMemberships(MetricsRegistry* registry) {
  std::map<Membership, Gauge*> gauges;
  for (const Membership membership :
       {Membership::kActive, Membership::kLost, Membership::kLeft,
        Membership::kEvicted}) {
    gauges[membership] = registry->AddGauge(
        "diloco_coordinator_workers", "Workers by membership.",
        {{"state", MembershipName(membership)}});
  }
  return gauges;
}

}  // namespace

CoordinatorMetrics::CoordinatorMetrics(MetricsRegistry* registry)
    : received_bytes(registry->AddCounter(
          "diloco_coordinator_received_bytes_total",
          "Bytes of update uploads received from workers, framing included.")),
      sent_bytes(registry->AddCounter(
          "diloco_coordinator_sent_bytes_total",
          "Bytes of files sent to workers, framing included.")),
      digest_mismatches(
          registry->AddCounter("diloco_coordinator_digest_mismatches_total",
                               "Copies of theta in workers whose digest was "
                               "not the published one.")),
      duplicates(registry->AddCounter(kUpdates, kUpdatesHelp,
                                      {{"result", "duplicate"}})),
      images_passed_over(registry->AddCounter(
          "diloco_coordinator_images_passed_over_total",
          "Images that could not be used at the start: the one before was "
          "taken, and the updates since were folded again.")),
      fold_seconds(registry->AddHistogram(
          "diloco_coordinator_fold_seconds",
          "Time of one fold, from closed round to durable files.", kSeconds)),
      registry_(registry),
      round_(registry->AddGauge("diloco_coordinator_round",
                                "Highest round number opened.")),
      version_(registry->AddGauge("diloco_coordinator_version",
                                  "Published version of theta.")),
      folded_tokens_(registry->AddGauge("diloco_coordinator_folded_tokens",
                                        "Tokens in folded updates so far.")),
      eval_loss_(registry->AddGauge(
          "diloco_coordinator_eval_loss",
          "Loss of the newest evaluated version, nats per token.")),
      workers_(AddMemberships(registry)),
      epoch_(registry->AddGauge("diloco_coordinator_epoch",
                                "Starts of this run's coordinator.")),
      rounds_folded_(
          registry->AddCounter(kRounds, kRoundsHelp, {{"result", "folded"}})),
      rounds_void_(
          registry->AddCounter(kRounds, kRoundsHelp, {{"result", "void"}})),
      rounds_extended_(
          registry->AddCounter(kRounds, kRoundsHelp, {{"result", "extended"}})),
      updates_accepted_(registry->AddCounter(kUpdates, kUpdatesHelp,
                                             {{"result", "accepted"}})),
      updates_refused_(registry->AddCounter(kUpdates, kUpdatesHelp,
                                            {{"result", "refused"}})),
      screened_(AddScreens(registry)),
      updates_missing_(registry->AddCounter(kUpdates, kUpdatesHelp,
                                            {{"result", "missing"}})),
      leases_opened_(
          registry->AddCounter(kLeases, kLeasesHelp, {{"kind", "opened"}})),
      leases_late_(
          registry->AddCounter(kLeases, kLeasesHelp, {{"kind", "late"}})),
      skipped_(registry->AddCounter(
          "diloco_coordinator_skipped_workers_total",
          "Workers that a round was opened without, of those not gone.")),
      deadline_(registry->AddGauge("diloco_coordinator_round_deadline_seconds",
                                   "Deadline of the newest round.")),
      probes_(AddProbes(registry)),
      journal_records_(
          registry->AddCounter("diloco_coordinator_journal_records_total",
                               "Facts made durable by this process.")),
      round_seconds_(registry->AddHistogram(
          "diloco_coordinator_round_duration_seconds",
          "Time from opening a round to its close.", kSeconds)) {}

void CoordinatorMetrics::Restore(const State& state) {
  epoch_->Set(static_cast<double>(state.epoch));
  SetState(state);
}

void CoordinatorMetrics::SetState(const State& state) {
  round_->Set(static_cast<double>(state.fragments[0].last_round));
  version_->Set(static_cast<double>(ThetaVersion(state)));
  folded_tokens_->Set(static_cast<double>(state.folded_tokens));
  if (state.last_eval.has_value()) eval_loss_->Set(state.last_eval->loss);
  std::map<Membership, double> counts;
  for (const auto& [name, worker] : state.workers) ++counts[worker.membership];
  for (const auto& [membership, gauge] : workers_) {
    gauge->Set(counts[membership]);
  }
}

void CoordinatorMetrics::Count(const Fact& fact) {
  journal_records_->Increment();
  if (const auto* closed = std::get_if<RoundClosed>(&fact)) {
    (closed->members.empty() ? rounds_void_ : rounds_folded_)->Increment();
    updates_missing_->Increment(static_cast<double>(closed->missing.size()));
    for (const RoundMember& member : closed->members) {
      SetNorm(member.worker, member.norm_per_lr);
    }
    round_seconds_->Observe(absl::ToDoubleSeconds(closed->duration));
  } else if (const auto* extended = std::get_if<RoundExtended>(&fact)) {
    rounds_extended_->Increment();
    leases_opened_->Increment(static_cast<double>(extended->added.size()));
  } else if (const auto* opened = std::get_if<RoundOpened>(&fact)) {
    leases_opened_->Increment(static_cast<double>(opened->leases.size()));
    skipped_->Increment(static_cast<double>(opened->skipped.size()));
    deadline_->Set(absl::ToDoubleSeconds(opened->deadline));
  } else if (std::holds_alternative<LeaseAdded>(fact)) {
    leases_late_->Increment();
  } else if (std::holds_alternative<UpdateCommitted>(fact)) {
    updates_accepted_->Increment();
  } else if (const auto* refused = std::get_if<UpdateRefused>(&fact)) {
    updates_refused_->Increment();
    screened_.at(refused->screen)->Increment();
    if (refused->screen == Screen::kNorm) {
      SetNorm(refused->worker, refused->figure);
    }
  }
}

void CoordinatorMetrics::SetNorm(const std::string& worker, double figure) {
  registry_->AddGauge(kUpdateNorm, kUpdateNormHelp, {{"worker", worker}})
      ->Set(figure);
}

void CoordinatorMetrics::CountProbe(ProbeVerdict::Kind kind) {
  probes_.at(kind)->Increment();
}

void CoordinatorMetrics::SetWorker(const std::string& worker,
                                   const WorkerProgress& progress) {
  for (const WorkerSeries& series : kWorkerSeries) {
    registry_->AddGauge(series.name, series.help, {{"worker", worker}})
        ->Set(series.value(progress));
  }
}

void CoordinatorMetrics::RemoveWorker(const std::string& worker) {
  for (const WorkerSeries& series : kWorkerSeries) {
    registry_->RemoveGauge(series.name, {{"worker", worker}});
  }
  registry_->RemoveGauge(kUpdateNorm, {{"worker", worker}});
}

}  // namespace diloco

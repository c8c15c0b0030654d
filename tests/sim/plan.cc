#include "tests/sim/plan.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/simulate/stream.h"

namespace diloco::sim {
namespace {

constexpr FaultKind kKinds[] = {
    FaultKind::kCoordinatorCrash,
    FaultKind::kRottenImage,
    FaultKind::kWorkerCrash,
    FaultKind::kWorkerCrash,
    FaultKind::kWorkerLosesScratch,
    FaultKind::kWorkerLeaves,
    FaultKind::kCut,
    FaultKind::kCut,
    FaultKind::kSlow,
    FaultKind::kDiskFull,
    FaultKind::kFailedSync,
    FaultKind::kFailedWrite,
    FaultKind::kLostRequest,
    FaultKind::kLostReply,
    FaultKind::kLostReply,
    FaultKind::kLateRequest,
    FaultKind::kRepeated,
    FaultKind::kRepeated,
    FaultKind::kCorrupted,
    FaultKind::kPause,
    FaultKind::kDrain,
};

// Each fault has a stream of its own: what one draws moves no other.
Fault DrawFault(const SimOptions& options, size_t number, Instant at) {
  Stream stream(options.seed, absl::StrCat("fault ", number));
  Fault fault;
  fault.at = at;
  fault.kind = kKinds[stream.Below(std::size(kKinds))];
  fault.worker =
      static_cast<int>(stream.Below(static_cast<uint64_t>(options.workers)));
  fault.message = static_cast<Message>(stream.Below(kMessages));
  fault.n = static_cast<int>(1 + stream.Below(12));
  fault.keep = stream.Chance(0.5) ? 0 : stream.Below(400);
  fault.power_cut = stream.Chance(0.5);
  fault.factor = 2 + 4 * stream.Uniform();
  const double seconds = stream.Exponential(25);
  fault.lasts = absl::Milliseconds(static_cast<int64_t>(1000 * seconds) + 500);
  switch (fault.kind) {
    case FaultKind::kCoordinatorCrash:
    case FaultKind::kRottenImage:
    case FaultKind::kPause:
      fault.worker = -1;
      break;
    case FaultKind::kDiskFull:
    case FaultKind::kFailedSync:
    case FaultKind::kFailedWrite:
      if (stream.Chance(0.5)) fault.worker = -1;
      break;
    case FaultKind::kLateRequest:
    case FaultKind::kRepeated:
      fault.lasts = absl::Milliseconds(
          100 + static_cast<int64_t>(stream.Exponential(4000)));
      break;
    default:
      break;
  }
  return fault;
}

std::string WhoIs(int worker) {
  return worker < 0 ? "coordinator" : WorkerName(worker);
}

}  // namespace

std::optional<Plant> ParsePlant(const std::string& name) {
  if (name == "count-twice") return Plant::kCountTwice;
  if (name == "skip-fsync") return Plant::kSkipFsync;
  if (name == "wrong-weight") return Plant::kWrongWeight;
  if (name == "forget-momentum") return Plant::kForgetMomentum;
  return std::nullopt;
}

const char* MessageName(Message message) {
  switch (message) {
    case Message::kJoin:
      return "join";
    case Message::kWatch:
      return "watch";
    case Message::kBeat:
      return "beat";
    case Message::kResolve:
      return "resolve";
    case Message::kEval:
      return "eval";
    case Message::kLeave:
      return "leave";
    case Message::kBegin:
      return "begin";
    case Message::kWrite:
      return "write";
    case Message::kFinish:
      return "finish";
    case Message::kRead:
      return "read";
  }
  return "?";
}

std::string WorkerName(int worker) {
  return absl::StrFormat("worker-%02d", worker);
}

std::string Stamp(Instant at) {
  const int64_t ms = absl::ToInt64Milliseconds(at);
  return absl::StrFormat("%d:%02d.%03d", ms / 60000, ms / 1000 % 60, ms % 1000);
}

std::string Describe(const Fault& fault) {
  const std::string lasts = absl::FormatDuration(fault.lasts);
  const std::string place =
      fault.power_cut
          ? absl::StrCat("power cut, ", fault.keep, " bytes of a file kept")
          : "killed";
  std::string what;
  switch (fault.kind) {
    case FaultKind::kCoordinatorCrash:
    case FaultKind::kWorkerCrash:
      what = absl::StrCat("ends at change ", fault.n, " of its files, ", place,
                          ", back after ", lasts);
      break;
    case FaultKind::kRottenImage:
      what = absl::StrCat("ends at change ", fault.n,
                          " of its files, its newest image rots, back after ",
                          lasts);
      break;
    case FaultKind::kWorkerLosesScratch:
      what = absl::StrCat("ends and loses its scratch directory, back after ",
                          lasts);
      break;
    case FaultKind::kWorkerLeaves:
      what = absl::StrCat("leaves, back after ", lasts);
      break;
    case FaultKind::kCut:
      what = absl::StrCat("is cut off for ", lasts);
      break;
    case FaultKind::kSlow:
      what =
          absl::StrFormat("is %.1f times slower for %s", fault.factor, lasts);
      break;
    case FaultKind::kDiskFull:
      what = absl::StrCat("has a full disk for ", lasts);
      break;
    case FaultKind::kFailedSync:
      what = absl::StrCat("fsync ", fault.n, " fails");
      break;
    case FaultKind::kFailedWrite:
      what = absl::StrCat("write ", fault.n, " keeps ", fault.keep,
                          " bytes and fails");
      break;
    case FaultKind::kLostRequest:
      what = absl::StrCat("loses a ", MessageName(fault.message), " request");
      break;
    case FaultKind::kLostReply:
      what = absl::StrCat("loses a ", MessageName(fault.message), " reply");
      break;
    case FaultKind::kLateRequest:
      what = absl::StrCat("a ", MessageName(fault.message),
                          " request comes late by ", lasts);
      break;
    case FaultKind::kRepeated:
      what = absl::StrCat("a ", MessageName(fault.message),
                          " request comes again after ", lasts);
      break;
    case FaultKind::kCorrupted:
      what = "a chunk is corrupted on the way";
      break;
    case FaultKind::kPause:
      what = absl::StrCat("is paused for ", lasts);
      break;
    case FaultKind::kDrain:
      what = absl::StrCat("is drained, back after ", lasts);
      break;
  }
  return absl::StrCat(Stamp(fault.at), " ", WhoIs(fault.worker), " ", what);
}

Plan DrawPlan(const SimOptions& options) {
  Plan plan;
  Stream stream(options.seed, "settings");
  Policy& policy = plan.policy;
  policy.interval = static_cast<uint32_t>(6 + stream.Below(8));
  policy.batch_tokens = 8;
  policy.train_tokens = options.rounds * policy.interval * policy.batch_tokens *
                        static_cast<uint64_t>(options.workers);
  policy.wait_for =
      static_cast<uint32_t>(1 + stream.Below(options.workers > 1 ? 2 : 1));
  policy.min_updates = static_cast<uint32_t>(1 + stream.Below(2));
  policy.min_updates =
      std::min(policy.min_updates, static_cast<uint32_t>(options.workers));
  policy.short_round = static_cast<ShortRound>(stream.Below(3));
  policy.late = stream.Chance(0.75) ? LatePolicy::kCarry : LatePolicy::kReject;
  policy.weighting =
      stream.Chance(0.75) ? Weighting::kTokens : Weighting::kUniform;
  constexpr Codec kDrawn[] = {Codec::kFp16, Codec::kFp32, Codec::kFp16,
                              Codec::kInt8, Codec::kE3m0, Codec::kInt8Buckets};
  policy.codec_up = kDrawn[stream.Below(std::size(kDrawn))];
  policy.nesterov = stream.Chance(0.75);
  policy.outer_lr = 0.7;
  policy.outer_momentum = stream.Chance(0.75) ? 0.9 : 0;
  if (stream.Chance(0.5)) {
    policy.eval_every = static_cast<uint32_t>(1 + stream.Below(4));
    policy.eval_windows = kEvalWindows;
  }
  Stream sync(options.seed, "sync");
  if (options.fragments > 1) {
    plan.overlap = static_cast<uint32_t>(sync.Below(3));
    plan.merge = sync.Chance(0.5) ? MergeMode::kExact : MergeMode::kSlip;
    // By a merge that keeps nothing the trainer knows what is dropped.
    plan.mix = 0.5;
  }
  policy.exact = plan.merge == MergeMode::kExact;
  Stream rounds(options.seed, "rounds");
  if (rounds.Chance(0.3)) {
    if (rounds.Chance(0.5)) {
      policy.quorum_share = 0.3 + 0.6 * rounds.Uniform();
    } else {
      policy.quorum = static_cast<uint32_t>(
          1 + rounds.Below(static_cast<uint64_t>(options.workers)));
    }
    policy.grace_share = 0.5 * rounds.Uniform();
  }
  policy.steps_by_speed = rounds.Chance(0.3);
  plan.step = absl::Seconds(3);
  if (stream.Chance(0.5)) policy.deadline = 3 * policy.interval * plan.step;
  plan.checkpoint_every = absl::Seconds(30);
  plan.nominal = static_cast<int64_t>(options.rounds) *
                 (policy.interval * plan.step + absl::Seconds(1));
  for (int i = 0; i < options.workers; ++i) {
    Stream own(options.seed, absl::StrCat("worker ", i));
    plan.factor.push_back(0.9 + 0.2 * own.Uniform());
    // Some come late.
    const bool late = i >= static_cast<int>(policy.wait_for) &&
                      options.faults_per_hour > 0 && own.Chance(0.3);
    plan.start.push_back(late ? own.Uniform() * plan.nominal
                              : own.Uniform() * absl::Seconds(2));
    // Some machines are much slower than the others.
    Stream machine(options.seed, absl::StrCat("machine ", i));
    if (machine.Chance(0.1)) plan.factor.back() *= 2 + 8 * machine.Uniform();
  }
  if (options.faults_per_hour <= 0) return plan;
  Stream times(options.seed, "times");
  // Runs with faults take longer than the nominal time.
  const Instant end = 4 * plan.nominal;
  Instant at = absl::ZeroDuration();
  while (true) {
    at += absl::Milliseconds(static_cast<int64_t>(
        1000 * times.Exponential(3600 / options.faults_per_hour)));
    if (at > end) break;
    plan.faults.push_back(DrawFault(options, plan.faults.size(), at));
  }
  return plan;
}

}  // namespace diloco::sim

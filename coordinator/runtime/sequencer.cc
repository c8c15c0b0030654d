#include "coordinator/runtime/sequencer.h"

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "coordinator/core/soft.h"
#include "coordinator/store/fact_codec.h"

namespace diloco {
namespace {

constexpr absl::Duration kTickEvery = absl::Milliseconds(200);
constexpr absl::Duration kDiskRetry = absl::Seconds(1);
// A commit that takes longer held up everything: the run stood still.
constexpr absl::Duration kStall = absl::Seconds(1);
// Callers that come later than this are told at once, not left to wait.
constexpr absl::Duration kTellAfter = absl::Seconds(5);

}  // namespace

Sequencer::Sequencer(Options options) : options_(std::move(options)) {}

Sequencer::~Sequencer() { Stop(); }

void Sequencer::Start() {
  thread_ = options_.threads->Start([this] { Loop(); });
}

void Sequencer::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    wake_.SignalAll();
  }
  if (thread_ != nullptr) thread_->Join();
  thread_.reset();
}

void Sequencer::Submit(Event event, Reply reply) {
  bool refused = false;
  {
    MutexLock lock(&mu_);
    refused = stopping_;
    if (!refused) {
      queue_.push_back({std::move(event), reply, nullptr});
      wake_.Signal();
    }
  }
  if (refused && reply) {
    reply(absl::UnavailableError("the coordinator is stopping"), 0);
  }
}

void Sequencer::Post(std::function<void(bool)> closure) {
  bool refused = false;
  {
    MutexLock lock(&mu_);
    refused = stopping_;
    if (!refused) {
      queue_.push_back({std::nullopt, nullptr, closure});
      wake_.Signal();
    }
  }
  if (refused) closure(false);
}

std::string Sequencer::trouble() const {
  MutexLock lock(&mu_);
  if (!trouble_.empty()) {
    return absl::StrCat("the journal waits for disk space: ", trouble_);
  }
  if (!commit_began_.has_value()) return "";
  const absl::Duration since = options_.clock->Now() - *commit_began_;
  if (since < kStall) return "";
  return absl::StrCat("the journal has not been written for ",
                      absl::ToInt64Seconds(since),
                      " s: the disk does not answer");
}

absl::Status Sequencer::Stalled() const {
  {
    MutexLock lock(&mu_);
    if (!commit_began_.has_value() ||
        options_.clock->Now() - *commit_began_ < kTellAfter) {
      return absl::OkStatus();
    }
  }
  const std::string why = trouble();
  if (why.empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(why, "; what was accepted is kept: try again"));
}

absl::Status Sequencer::Apply(const Event& event,
                              std::vector<AppliedFact>& applied) {
  const Instant now = options_.clock->Now();
  Decision decision =
      Decide(options_.policy, options_.state, options_.soft, event, now);
  EvolveSoft(options_.soft, event, decision, now);
  if (!decision.status.ok()) return decision.status;
  const uint64_t settings = options_.state.settings.applied;
  for (Fact& fact : decision.facts) {
    const absl::Status evolved = Evolve(options_.state, fact);
    DILOCO_CHECK(evolved.ok()) << evolved.message();
    const EncodedFact encoded = EncodeFact(fact);
    const uint64_t sequence =
        options_.journal->Append(encoded.type, encoded.payload);
    applied.push_back({sequence, std::move(fact)});
  }
  if (options_.state.settings.applied != settings) {
    options_.policy = options_.policy_of(options_.state);
  }
  if (!decision.reason.empty()) {
    DILOCO_LOG(INFO) << decision.reason << " run=" << options_.state.run;
  }
  return absl::OkStatus();
}

bool Sequencer::CommitOrWait() {
  const Instant begin = options_.clock->Now();
  {
    MutexLock lock(&mu_);
    commit_began_ = begin;
  }
  bool waited = false;
  bool durable = true;
  while (true) {
    const absl::Status status = options_.journal->Commit();
    if (status.ok()) break;
    if (!absl::IsResourceExhausted(status)) {
      options_.on_fatal(status);
      durable = false;
      break;
    }
    options_.on_full();
    MutexLock lock(&mu_);
    if (trouble_.empty()) {
      DILOCO_LOG(ERROR) << "the journal cannot be written; the run waits for "
                           "space error=\""
                        << status.message() << "\"";
    }
    trouble_ = std::string(status.message());
    waited = true;
    if (!stopping_) wake_.WaitFor(&mu_, kDiskRetry);
    if (stopping_) {
      durable = false;
      break;
    }
  }
  {
    MutexLock lock(&mu_);
    commit_began_.reset();
    if (durable) trouble_.clear();
  }
  if (durable && waited) DILOCO_LOG(INFO) << "journal writes again";
  const absl::Duration stall = options_.clock->Now() - begin;
  if (stall >= kStall) StandStill(options_.soft, stall);
  return durable;
}

void Sequencer::Loop() {
  bool broken = false;  // What was decided last is not durable.
  while (true) {
    std::deque<Item> batch;
    bool stopping = false;
    {
      MutexLock lock(&mu_);
      if (queue_.empty() && !stopping_) wake_.WaitFor(&mu_, kTickEvery);
      batch.swap(queue_);
      stopping = stopping_;
    }
    // First who was heard of: the state is still the durable one, and what
    // becomes due below must know of every beat that came in meanwhile.
    for (Item& item : batch) {
      if (item.closure) item.closure(!broken);
    }
    // An event may open a round, as a tick does.
    options_.soft.no_room = options_.no_room();
    std::vector<AppliedFact> applied;
    struct Answer {
      Reply reply;
      absl::Status status;
      uint64_t sequence;
    };
    std::vector<Answer> answers;
    for (Item& item : batch) {
      if (!item.event.has_value()) continue;
      const absl::Status status =
          broken ? absl::OkStatus() : Apply(*item.event, applied);
      answers.push_back({std::move(item.reply), status,
                         applied.empty() ? options_.journal->last_sequence()
                                         : applied.back().sequence});
    }
    if (!stopping) {
      const absl::Status ticked =
          Apply(TickEvent{options_.soft.no_room}, applied);
      DILOCO_CHECK(ticked.ok()) << ticked.message();
    }
    if (!applied.empty() && !CommitOrWait()) {
      broken = true;
      MutexLock lock(&mu_);
      stopping_ = true;
      stopping = true;
    }
    if (!broken && !applied.empty()) options_.on_durable(applied);
    for (Answer& answer : answers) {
      if (!answer.reply) continue;
      if (broken) {
        answer.reply(absl::UnavailableError("the coordinator is stopping"), 0);
      } else {
        answer.reply(answer.status, answer.sequence);
      }
    }
    if (!broken) options_.after_batch();
    if (stopping) {
      MutexLock lock(&mu_);
      if (queue_.empty()) return;
    }
  }
}

}  // namespace diloco

// A run in memory for the tests of coordinator/core: state, soft state and a
// clock that the test moves; every decision's facts are applied and recorded.
#ifndef TESTS_UNIT_CORE_CORE_RUN_H_
#define TESTS_UNIT_CORE_CORE_RUN_H_

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "coordinator/core/machine.h"

namespace diloco {

class CoreRun {
 public:
  // 100 tokens a step, H 10; two workers are awaited.
  explicit CoreRun(size_t fragments = 1) {
    policy.train_tokens = 100'000;
    policy.batch_tokens = 100;
    policy.interval = 10;
    policy.wait_for = 2;
    RunCreated created;
    created.run = "test";
    created.lineage = std::string(16, 'l');
    created.fragments.resize(fragments);
    for (RunCreated::Fragment& fragment : created.fragments) {
      fragment.digest = VersionDigest(0);
    }
    Record(created);
    Record(EpochStarted{1, "nonce001"});
    soft = StartSoft(state, now);
  }

  static Digest VersionDigest(uint64_t version) {
    return Sha256(absl::StrCat("version ", version));
  }

  Decision Do(const Event& event) {
    Decision decision = Decide(policy, state, soft, event, now);
    for (const Fact& fact : decision.facts) Record(fact);
    EvolveSoft(soft, event, decision, now);
    return decision;
  }
  Decision Tick() { return Do(TickEvent{}); }
  // Everybody named beats, after `passed`.
  void Pass(absl::Duration passed, const std::vector<std::string>& heard = {}) {
    now += passed;
    for (const std::string& name : heard) Do(BeatEvent{name});
    Tick();
  }

  Decision Join(const std::string& name, const std::string& previous = "",
                bool take_over = false) {
    JoinEvent event;
    event.worker = name;
    event.attempt = absl::StrCat("attempt", ++joins_);
    event.previous_session = previous;
    event.new_session = absl::StrCat("session", joins_);
    event.take_over = take_over;
    event.peer = absl::StrCat("ipv4:10.0.0.", joins_);
    return Do(event);
  }
  const std::string& SessionOf(const std::string& name) const {
    return state.workers.at(name).session;
  }

  UpdateValue Value(const std::string& name, uint64_t tokens = 0,
                    uint32_t fragment = 0) const {
    const FragmentState& of = state.fragments[fragment];
    UpdateValue value;
    value.base_version = of.open ? of.open->base_version : of.version;
    value.base_digest = of.digest;
    value.bytes = 1000;
    value.digest = Sha256(absl::StrCat(name, " ", of.last_round));
    value.tokens = tokens;
    if (tokens == 0) {
      value.tokens = of.open && of.open->leases.count(name) != 0
                         ? of.open->leases.at(name).tokens
                         : 1000;
    }
    value.steps = 10;
    value.loss = 3.0;
    return value;
  }
  UpdateVerifiedEvent Verified(const std::string& name,
                               const UpdateValue& value,
                               uint32_t fragment = 0) const {
    UpdateVerifiedEvent event;
    event.worker = name;
    event.fragment = fragment;
    event.round = state.fragments[fragment].last_round;
    event.value = value;
    return event;
  }
  Decision Deliver(const std::string& name, uint64_t tokens = 0,
                   uint32_t fragment = 0) {
    return Do(Verified(name, Value(name, tokens, fragment), fragment));
  }
  Decision Refuse(const std::string& name) {
    return Do(UpdateUnusableEvent{name, 0, round(), Sha256("bad"),
                                  "element 7 is nan"});
  }
  Decision Fold(uint32_t fragment = 0) {
    const std::optional<FoldOrder> order = PendingFold(state, fragment);
    DILOCO_CHECK(order.has_value()) << "no fold is pending";
    FoldDoneEvent done;
    done.published.fragment = fragment;
    done.published.round = order->closed.round;
    done.published.version = order->base_version + 1;
    done.published.digest = VersionDigest(order->base_version + 1);
    return Do(done);
  }
  absl::StatusOr<UploadVerdict> Judge(const std::string& name, uint64_t round,
                                      const UpdateValue& value) const {
    return JudgeUpload(policy, state, name, 0, round, value, 1000);
  }
  WorkerView View(const std::string& name) const {
    return ViewFor(policy, state, soft, name, now);
  }

  uint64_t round() const { return state.fragments[0].last_round; }
  uint64_t version() const { return state.fragments[0].version; }
  bool open() const { return state.fragments[0].open.has_value(); }
  const OpenRound& open_round() const { return *state.fragments[0].open; }
  bool folding() const { return state.fragments[0].folding.has_value(); }
  const RoundClosed& closed() const { return *LastFact<RoundClosed>(); }

  // The newest fact of a kind in the record, or nullptr.
  template <typename F>
  const F* LastFact() const {
    for (auto fact = facts.rbegin(); fact != facts.rend(); ++fact) {
      if (const F* found = std::get_if<F>(&*fact)) return found;
    }
    return nullptr;
  }
  template <typename F>
  int Count() const {
    int count = 0;
    for (const Fact& fact : facts) count += std::holds_alternative<F>(fact);
    return count;
  }

  Policy policy;
  State state;
  Soft soft;
  Instant now = absl::Seconds(1000);
  std::deque<Fact> facts;  // Pointers into it stay good.

 private:
  void Record(const Fact& fact) {
    const absl::Status status = Evolve(state, fact);
    DILOCO_CHECK(status.ok()) << status.ToString();
    facts.push_back(fact);
  }

  int joins_ = 0;
};

template <typename F>
bool Has(const Decision& decision) {
  for (const Fact& fact : decision.facts) {
    if (std::holds_alternative<F>(fact)) return true;
  }
  return false;
}

inline std::vector<std::string> MemberNames(const RoundClosed& closed) {
  std::vector<std::string> names;
  for (const RoundMember& member : closed.members) {
    names.push_back(member.worker);
  }
  return names;
}

using Names = std::vector<std::string>;

}  // namespace diloco

#endif  // TESTS_UNIT_CORE_CORE_RUN_H_
